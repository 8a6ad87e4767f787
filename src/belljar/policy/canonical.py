"""Canonical text: the same text is judged and run.

bash and the parser read some bytes differently (a lone CR after a backslash hides a command). A text with such bytes is
refused here.
"""

from belljar.patterns import lazy_pattern
from belljar.records import record

MAX_CHARS = 131_072  # MAX_ARG_STRLEN: a longer word could not be passed to bash at all

_CONTROL = lazy_pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\r]")
_SURROGATE = lazy_pattern(r"[\ud800-\udfff]")
_INVISIBLE = lazy_pattern(
    r"[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\u00ad\u180e]"
)
_AMBIGUOUS = "which shells and parsers read differently"
_NAMES = {
    "\x00": "a NUL byte",
    "\r": "a lone carriage return",
    "\x1b": "an escape character",
}


@record
class Canonical:
    """`problem`: why the text is refused. `invisible`: it contains invisible characters."""

    text: str
    problem: str = ""
    invisible: bool = False


def canonical(command: object) -> Canonical:
    if not isinstance(command, str):
        return Canonical("", f"a command is text, not {type(command).__name__}")
    if len(command) > MAX_CHARS:
        return Canonical(
            command[:200],
            f"it is too large to judge ({len(command)} characters, {MAX_CHARS} at most)",
        )
    if "\\\r\n" in command:
        return Canonical(
            command.replace("\r", "�"),
            f"it contains a backslash before CR LF, {_AMBIGUOUS}",
        )
    text = command.replace("\r\n", "\n").strip(" \t\n")
    if _SURROGATE.search(text):
        return Canonical(
            text.encode("utf-8", "replace").decode(),
            "it contains an unpaired surrogate",
        )
    if found := _CONTROL.search(text):
        what = _NAMES.get(found[0], f"the control character U+{ord(found[0]):04X}")
        return Canonical(_CONTROL.sub("�", text), f"it contains {what}, {_AMBIGUOUS}")
    if not text:
        return Canonical("", "the command is empty")
    return Canonical(text, invisible=_INVISIBLE.search(text) is not None)


def canonical_argv(argv: list[object]) -> Canonical:
    """The same for an argument vector. Refused is only what exec cannot take and what is not text."""
    import shlex

    if not argv or not all(isinstance(word, str) for word in argv):
        return Canonical("", "an argument vector is a non-empty list of strings")
    words = [str(word) for word in argv]
    joined = "\0".join(words)
    if len(joined) > MAX_CHARS:
        return Canonical(
            joined[:200].replace("\0", " "),
            f"it is too large to judge ({len(joined)} characters)",
        )
    if _SURROGATE.search(joined) or any("\0" in word for word in words):
        return Canonical("", "it contains a NUL byte or an unpaired surrogate")
    if not words[0].strip():
        return Canonical("", "the program's name is empty")
    return Canonical(shlex.join(words), invisible=_INVISIBLE.search(joined) is not None)


# -- the fast path: characters without a meaning for the shell, and words in simple quotes, need no parser

_WORD = lazy_pattern(r"""(?:[A-Za-z0-9_@%+:,./-]|=|'[^']*'|"[^"$`\\!]*")+""")
_GAP = lazy_pattern(r"[ \t]+")
_QUOTED = lazy_pattern(r"""'([^']*)'|"([^"]*)\"""")
_RESERVED = lazy_pattern(
    r"(?:if|then|else|elif|fi|do|done|case|esac|while|until|for|in|function|time|select|coproc|declare|typeset|local"
    r"|export|readonly|nameref|let)$|[A-Za-z_][A-Za-z0-9_]*\+?="
)


def plain_words(text: str) -> list[str] | None:
    """The words of a plain simple command, or None if it needs the parser."""
    words: list[str] = []
    at = 0
    end = len(text)
    while at < end:
        if (match := _WORD.match(text, at)) is None:
            return None
        words.append(match[0])
        at = match.end()
        if at == end:
            break
        if (gap := _GAP.match(text, at)) is None:
            return None
        at = gap.end()
    if not words or _RESERVED.match(words[0]):
        return None
    return [
        _QUOTED.sub(r"\1\2", word) if "'" in word or '"' in word else word
        for word in words
    ]
