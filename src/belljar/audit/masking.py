"""Masks secrets in text that is kept or shown (audit, logs, `--json`); never in what a command gets.

A secret is recognized by its place (the value of a variable, option, header or field with a telling name, the password
of a URL) or by its shape (tokens of well-known services). In the output of a command only secrets from its own text and
environment are masked: guesses must not alter an agent's data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any

from belljar.patterns import lazy_pattern

MASK = "***"
_SEARCHED = 64 << 10
"""Characters of a command or variable that are searched for secrets that its output may contain."""
_SHORTEST_KNOWN = 4
"""A shorter value would mask ordinary text."""

_NAME = (
    r"(?:token|secret|passw(?:or)?d|passphrase|passwd|credential|cookie|bearer|jwt"
    r"|(?<![a-z])(?:auth(?!or|_sock)|pass|dsn)(?![a-z])|(?<=[_-])pwd"
    r"|(?<!mon)(?<!don)(?<!tur)(?<!hoc)key(?!board|word|stone|map|error|s?[_-]?(?:path|file|dir)))"
)
_SECRET_NAME = lazy_pattern(_NAME, re.IGNORECASE)

_QUOTED = r"""(?:"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\Z)|'[^'\\]*+(?:\\.[^'\\]*+)*(?:'|\Z))"""
_BARE = r"""(?:\\.|[^\s;&|<>()"'\\$`,}]|\$(?![\w{(@*#?!$-]))"""
# A quote that was opened before the name (-H 'Key: x' host) ends the value.
_WORD = rf"""(?:\$?{_QUOTED}|{_BARE})(?:{_BARE}|\$?(?=["'][^\s,;)\]}}]){_QUOTED})*"""
_TOKENS = (
    r"(?:gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}"
    r"|sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_\w{10,}|A[KS]IA[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{10,}"
    r"|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|hf_[A-Za-z0-9]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|dop_v1_[a-f0-9]{32,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)"
)
# Programs with a one-letter option for a password, with or without a blank after it.
_WITHIN = r"\s(?:[^|;&\n]{0,200}?\s)?"
_TOOLS = "|".join(
    (
        r"sshpass\s+-p\s*",
        rf"(?:mysql\w*|mariadb\w*|7z[ar]?){_WITHIN}-p(?=\S)",
        rf"(?:docker|podman|buildah|skopeo|helm|oras|nerdctl)\s+(?:registry\s+)?login{_WITHIN}-p\s*",
        rf"(?:mongo\w*|rabbitmqadmin){_WITHIN}-p\s+",
        rf"redis-cli{_WITHIN}-a\s*",
        rf"(?:zip|unzip){_WITHIN}-P\s*",
        rf"ldap(?:search|modify|add|delete|whoami|passwd){_WITHIN}-w\s*",
    )
)
_PLACES = (
    r"(?P<pem>-----BEGIN [A-Z ]*PRIVATE KEY-----)(?P<v_pem>.*?)(?=-----END|\Z)",
    rf"(?P<token>(?<![\w-]){_TOKENS})",
    r"(?P<url>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]*+:)(?P<v_url>[^\s/@'\"]++)(?=@)",
    r"(?P<userinfo>\bhttps?://)(?P<v_userinfo>[^\s/:@'\"]++)(?=@)",
    r"(?P<head>\b(?:proxy-)?authorization\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|digest|apikey)\s+)?)"
    r"(?P<v_head>[^\s\"',;]+)",
    # Each run of name characters is tried only at its beginning: a search from every character would be quadratic.
    rf"(?P<opt>(?<![\w-])--?(?=[\w-]*{_NAME})[\w-]++(?:\s+|=))(?P<v_opt>(?!-){_WORD})",
    rf"(?P<name>(?<![\w.-])(?=[\w.-]*{_NAME})[\w.-]++[\"']?(?:\+?=|\s*:\s*))(?P<v_name>{_WORD})",
    r"(?P<user>(?<![\w-])(?:-u|--user)[ =]?[\"']?[^\s:\"'/@]+:)(?P<v_user>[^\s\"'@/]+)",
    rf"(?P<tool>\b(?:{_TOOLS}))(?P<v_tool>{_WORD})",
    rf"(?<=[:\s])(?P<npm>_(?:auth|authToken|password)\s+)(?P<v_npm>{_WORD})",
    r"(?P<netrc>\b(?:machine\s+\S+|default|login\s+\S+)\s+(?:login\s+\S+\s+)?passw(?:or)?d\s+)(?P<v_netrc>[^\s\"']+)",
    r"(?<=[?&])(?P<signed>(?:sig|signature|hmac|x-(?:amz|goog)-(?:signature|credential))=)(?P<v_signed>[^\s&\"']+)",
)


@cache
def _pattern() -> re.Pattern[str]:
    """Compiled on demand: most runs have no hint of a secret."""
    key, *others = _PLACES
    # All but a key's header begin at the beginning of a word: one look back saves a dozen attempts per character.
    return re.compile(
        f"{key}|(?<![A-Za-z0-9])(?:{'|'.join(others)})", re.IGNORECASE | re.DOTALL
    )


# Every match contains one of these, so most text does not need the pattern above (2 µs instead of 50). They are
# searched one by one: an alternation would be tried at every character.
_HINTS = (
    "token",
    "secret",
    "pass",
    "pwd",
    "credential",
    "key",
    "auth",
    "cookie",
    "bearer",
    "dsn",
    "://",
    "-u",
    "mysql",
    "gh",
    "github_pat_",
    "glpat-",
    "xox",
    "sk-",
    "k_live_",
    "k_test_",
    "akia",
    "asia",
    "aiza",
    "ya29.",
    "npm_",
    "pypi-",
    "hf_",
    "sg.",
    "dop_",
    "eyj",
    "jwt",
    "login",
    "redis-cli",
    "zip",
    "7z",
    "ldap",
    "mongo",
    "mariadb",
    "rabbitmq",
    "sig",
    "hmac",
)


TEXT = 8 << 10
"""Characters of one text that are kept: masking takes about a microsecond for each, and holds the GIL."""
ITEMS = 256
"""Items of one list or mapping that are kept."""


def bounded(data: Any) -> Any:
    """`data`, with each text, list and mapping cut to its beginning.

    The end of a text is never kept: it could begin in the middle of a secret, which would not be recognized.
    """
    if isinstance(data, bytes):
        return _cut(_decoded(data[: TEXT + 1]), len(data))
    if isinstance(data, str):
        return _cut(data, len(data))
    if isinstance(data, Mapping):
        return {bounded(k): bounded(v) for k, v in islice(data.items(), ITEMS)}
    if isinstance(data, Sequence):
        kept = [bounded(item) for item in data[:ITEMS]]
        return (
            [*kept, f"[... {len(data) - ITEMS} more ...]"]
            if len(data) > ITEMS
            else kept
        )
    return data


def _cut(text: str, length: int) -> str:
    if length <= TEXT:
        return text
    head = text[:TEXT]
    whole = (
        head[: max(head.rfind(" "), head.rfind("\n")) + 1] or head
    )  # half a token would not be recognized
    return f"{whole}[... {length - len(whole)} characters left out ...]"


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


def _mask(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    return MASK if kind == "token" else match[kind.removeprefix("v_")] + MASK


@lru_cache(maxsize=64)
def text(value: str) -> str:
    """`value` with all secrets masked. Cached, since a command is masked several times."""
    lowered = value.lower()
    return (
        _pattern().sub(_mask, value)
        if any(hint in lowered for hint in _HINTS)
        else value
    )


def environment(env: Mapping[str, str] | Mapping[bytes, bytes]) -> dict[str, str]:
    pairs = ((_decoded(name), _decoded(value)) for name, value in env.items())
    return {
        name: MASK if is_secret_name(name) else text(value) for name, value in pairs
    }


def _decoded(word: str | bytes) -> str:
    return word if isinstance(word, str) else word.decode("utf-8", "surrogateescape")


def value(data: Any) -> Any:
    """`data`, masked recursively."""
    if isinstance(data, str):
        return text(data)
    if isinstance(data, Mapping):
        return {
            k: MASK if isinstance(v, str) and is_secret_name(k) else value(v)
            for k, v in data.items()
        }
    if isinstance(data, bytes):
        return text(_decoded(data))
    if isinstance(data, Sequence):
        return [
            MASK if _is_option(last) else value(item)
            for last, item in zip(["", *data], data, strict=False)
        ]
    return data


def _is_option(word: object) -> bool:
    return (
        isinstance(word, str)
        and word.startswith("-")
        and "=" not in word
        and is_secret_name(word)
    )


class Known:
    """The secrets in one call's command and environment, to be masked in its output."""

    def __init__(
        self, command: str | Sequence[str] = "", env: Mapping[str, str] | None = None
    ) -> None:
        command = command if isinstance(command, str) else "\n".join(command)
        found = set(_values(command[:_SEARCHED]))
        for name, content in (env or {}).items():
            found.update(
                (content,) if is_secret_name(name) else _values(content[:_SEARCHED])
            )
        worth = sorted(
            (re.escape(v) for v in found if len(v) >= _SHORTEST_KNOWN),
            key=len,
            reverse=True,
        )
        self._pattern = re.compile("|".join(worth)) if worth else None

    def hide(self, data: Any) -> Any:
        """Mask these secrets, in text or in a JSON document."""
        if self._pattern is None:
            return data
        if isinstance(data, str):
            return self._pattern.sub(MASK, data)
        if isinstance(data, Mapping):
            return {k: self.hide(v) for k, v in data.items()}
        return [self.hide(v) for v in data] if isinstance(data, list | tuple) else data


def _values(command: str) -> Iterable[str]:
    for match in _pattern().finditer(command):
        found = match[match.lastgroup or 0].strip()
        yield found.removeprefix("$").strip("\"'") if found[:1] in "$\"'" else found
