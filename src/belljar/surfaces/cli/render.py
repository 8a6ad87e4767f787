"""What a command printed, made fit for a person's terminal.

A terminal obeys what it is sent: titles, the clipboard (OSC 52), answers typed back into the prompt,
text overwritten after it was read. So only text, newlines, tabs and colours (SGR) pass; every other
control is shown, not sent. Works on chunks as they come: a character or a sequence split between two of
them is judged whole.
"""

from __future__ import annotations

import codecs
import re

from belljar.patterns import lazy_pattern

_LONGEST_SGR = 64
_SGR = lazy_pattern(r"\x1b\[[0-9;:]*m")
_UNFINISHED = lazy_pattern(r"\x1b(?:\[[0-9;:]*)?\Z|\r\Z")
_CONTROL = lazy_pattern(
    r"(?P<sgr>\x1b\[[0-9;:]{0,60}m)|(?P<crlf>(?<!\r)\r+\n)|(?P<cr>\r)|(?P<low>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f])|(?P<high>[\x80-\x9f])"
    "|(?P<odd>[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f])"
)
_ANY = lazy_pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)  # as above; looking for one of a class is ten times as fast as trying each kind at each place
_CONCEAL = lazy_pattern(r"(?:^|;)0*8(?:;|$)")
RESET = "\x1b[0m"


def _shown(match: re.Match[str]) -> str:
    text, kind = match[0], match.lastgroup
    if kind == "sgr":
        return "" if _CONCEAL.search(text[2:-1]) else text
    if kind in ("crlf", "cr"):  # a lone CR would let a line rewrite itself
        return "\n"
    return _spelled(match)


def _spelled(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"^{chr(number ^ 0x40)}" if number < 0x80 else f"<U+{number:04X}>"


def safe(text: str) -> str:
    """`text` with colours, newlines and tabs as its only controls."""
    return _CONTROL.sub(_shown, text) if _ANY.search(text) else text


def exact(text: str) -> str:
    """`text` with newlines and tabs as its only controls, for what somebody looks at before he says yes: a colour can
    hide a line, and a lone CR begin one that is not there."""
    return _ANY.sub(_spelled, text)


def plain(text: str) -> str:
    """`text` without any control, on one line: for what goes into a message of ours."""
    return exact(text).replace("\n", "\\n").replace("\t", " ")


class Screen:
    """One stream on its way to a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._coloured = False

    def close(self) -> bytes:
        return self.feed(b"", final=True)

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        text = self._held + self._decoder.decode(data, final)
        open_end = None if final else _UNFINISHED.search(text)
        cut = open_end.start() if open_end and len(text) - open_end.start() < _LONGEST_SGR else len(text)
        text, self._held = text[:cut], text[cut:]
        shown = safe(text)
        if colours := _SGR.findall(shown):
            self._coloured = colours[-1] not in (RESET, "\x1b[m")
        if final and self._coloured:
            shown += RESET
        return shown.encode()
