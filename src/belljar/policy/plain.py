"""The fast path: a command of plain words needs no parser.

Only characters that no shell gives a meaning to, and simply quoted words, separated by blanks. Everything else goes
through the parser; a test holds both paths to the same verdicts.
"""

from belljar.patterns import lazy_pattern

from .quoting import listed

_WORD = lazy_pattern(r"""(?:[A-Za-z0-9_@%+:,./-]|=|'[^']*'|"[^"$`\\!]*")+""")
_GAP = lazy_pattern(r"[ \t]+")
_QUOTED = lazy_pattern(r"""'([^']*)'|"([^"]*)\"""")
_ASSIGNMENT = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_RESERVED = frozenset(
    listed(
        "if then else elif fi do done case esac while until for in function time select coproc declare "
        "typeset local export "
        "readonly nameref let"
    )
)


def plain_words(text: str) -> list[str] | None:
    """The words of a plain simple command, or None where the parser has to look."""
    words: list[str] = []
    at, end = 0, len(text)
    while at < end:
        match = _WORD.match(text, at)
        if match is None:
            return None
        words.append(match[0])
        at = match.end()
        if at == end:
            break
        gap = _GAP.match(text, at)
        if gap is None:
            return None
        at = gap.end()
    if not words or words[0] in _RESERVED or _ASSIGNMENT.match(words[0]):
        return None
    return [_unquote(word) if "'" in word or '"' in word else word for word in words]


def _unquote(word: str) -> str:
    return _QUOTED.sub(lambda found: found[1] if found[1] is not None else found[2], word)
