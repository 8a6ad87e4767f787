"""Git's settings files, and which settings cannot make git run a program.

Every release of git has new settings that name a program (`diff.external`, `interactive.diffFilter`,
`core.alternateRefsCommand`, `gpg.ssh.defaultKeyCommand` …), so the list is of the harmless ones: any other counts as
dangerous, and so does a file that cannot be parsed as git does.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from belljar.patterns import lazy_pattern

_SECTION = lazy_pattern(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_SETTING = lazy_pattern(r"([A-Za-z][A-Za-z0-9-]*)\s*(=?)")

_WHOLE = ("color", "advice")
_ADDRESSES = {"remote.*": {"url", "pushurl"}, "submodule.*": {"url"}}
# Addresses on another machine. A push to a local directory runs its hooks, `x::` runs git-remote-x, `ext::` anything.
_ELSEWHERE = lazy_pattern(
    r"(?!.*::)(?:(?:https?|ssh|git|git\+ssh|ssh\+git|ftps?)://(?!-)|(?!-)[^/:]+:(?!//)).*",
    re.DOTALL,
)
_REMOTES = {"branch.*": {"remote", "pushremote"}, "remote": {"pushdefault"}}
"""Settings that name a remote. If there is no such remote, git takes the name for an address."""


@cache
def _harmless() -> dict[str, list[str]]:
    lines = (
        Path(__file__)
        .with_name("harmless_git_settings.txt")
        .read_text()
        .replace("\n    ", " ")
        .splitlines()
    )
    return {
        section: keys.split()
        for section, _, keys in (line.partition(": ") for line in lines[1:])
    }


class Setting(NamedTuple):
    section: str
    name: str | None
    key: str
    value: str

    @property
    def harmless(self) -> bool:
        section = self.section if self.name is None else f"{self.section}.*"
        if self.section in _WHOLE or self.key in _harmless().get(section, ()):
            return True
        addressed = self.key in _ADDRESSES.get(section, ()) or self.names_remote
        return addressed and _ELSEWHERE.fullmatch(self.value) is not None

    @property
    def names_remote(self) -> bool:
        return self.key in _REMOTES.get(
            self.section if self.name is None else f"{self.section}.*", ()
        )


def settings(content: bytes) -> set[Setting] | None:
    """The settings in a file; None if git could not parse it."""
    try:
        text = content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    parsed: set[Setting] = set()
    section: tuple[str, str | None] | None = None
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] in "#;":
            at = _line_end(text, at)
        elif match := _SECTION.match(text, at):
            section, at = _named(match), match.end()
        elif section is not None and (match := _SETTING.match(text, at)):
            value, at = _value(text, match.end()) if match[2] else ("true", match.end())
            parsed.add(Setting(*section, match[1].lower(), value))
        else:
            return None
    return parsed


def that_run(content: bytes) -> set[Setting] | None:
    """The settings that may make git run something; None if git could not parse the file."""
    parsed = settings(content)
    if parsed is None:
        return None
    remotes = {
        ".",
        *(
            setting.name
            for setting in parsed
            if (setting.section, setting.key) == ("remote", "url")
        ),
    }
    return {
        s
        for s in parsed
        if not s.harmless and not (s.names_remote and s.value in remotes)
    }


def lookup(content: bytes, section: str, key: str) -> str | None:
    """The value of `section.key`; None if there is none or git could not parse the file."""
    if key.encode() not in content.lower():
        return None
    for setting in settings(content) or ():
        if (setting.section, setting.name, setting.key) == (section, None, key):
            return setting.value
    return None


def _named(match: re.Match[str]) -> tuple[str, str | None]:
    section, dot, old = match[1].partition(".")
    if match[2] is not None:
        return match[1].lower(), re.sub(r"\\(.)", r"\1", match[2])
    return section.lower(), old.lower() if dot else None


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _value(text: str, at: int) -> tuple[str, int]:
    """A value as git parses it, with quotes, escapes, comments and continued lines."""
    out, quoted = [], False
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            out.append("" if text[at + 1 : at + 2] == "\n" else text[at : at + 2])
            at += 2
            continue
        if letter == "\n" or (letter in "#;" and not quoted):
            break
        quoted ^= letter == '"'
        out.append("" if letter == '"' else letter)
        at += 1
    return "".join(out).strip(), _line_end(text, at)
