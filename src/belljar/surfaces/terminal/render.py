"""Makes a command's output safe for the user's terminal.

A terminal obeys what it is sent: it sets its title or the clipboard (OSC 52), types answers into the prompt, or
overwrites text. So only text, newlines, tabs and colours (SGR) pass. Every other control character is shown as text.
The output may come in chunks: a character or sequence that is split between two of them is handled as a whole.
"""

from __future__ import annotations

import codecs
import re

from belljar.patterns import lazy_pattern

# What takes no room, turns the text around, or is blank and yet a letter: two lines that look alike are then two
# programs. All that Unicode calls ignorable, but for the joiners that honest text is full of. And halves of
# pairs, which no terminal can be sent.
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_LONGEST_SGR = 64
_SGR = lazy_pattern(r"\x1b\[[0-9;:]*m")
_UNFINISHED = lazy_pattern(r"\x1b(?:\[[0-9;:]*)?\Z|\r\Z")
_CONTROL = lazy_pattern(
    r"(?P<sgr>\x1b\[[0-9;:]{0,60}m)|(?P<crlf>(?<!\r)\r+\n)|(?P<cr>\r)|(?P<low>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f])|(?P<high>[\x80-\x9f])"
    f"|(?P<odd>[{_UNSEEN}])"
)
# The same characters in one class: searching for it is ten times as fast as trying each alternative.
_ANY = lazy_pattern(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}]")
_JOINERS = lazy_pattern("(?:^|(?<=[\x00-\x7f]))[\u200c\u200d\ufe0e\ufe0f]+")
"""Emoji and some scripts need these; after ASCII they only hide something."""
_CONCEAL = lazy_pattern(r"(?:^|;)0*8(?:;|$)")
RESET = "\x1b[0m"


def _shown(match: re.Match[str]) -> str:
    text, kind = match[0], match.lastgroup
    if kind == "sgr":
        return "" if _CONCEAL.search(text[2:-1]) else text
    if kind in ("crlf", "cr"):  # a lone CR would let text overwrite its own line
        return "\n"
    return _spelled(match)


def _spelled(match: re.Match[str]) -> str:
    return "".join(
        f"^{chr(each ^ 0x40)}" if each < 0x80 else f"<U+{each:04X}>"
        for each in map(ord, match[0])
    )


def safe(text: str) -> str:
    """`text` with colours, newlines and tabs as its only controls."""
    return _CONTROL.sub(_shown, text) if _ANY.search(text) else text


def exact(text: str) -> str:
    """`text` with newlines and tabs as its only controls, for text that a user must approve: a colour can hide a line,
    and a lone CR can overwrite one."""
    return _JOINERS.sub(_spelled, _ANY.sub(_spelled, text))


def plain(text: str) -> str:
    """`text` on one line without any control, for use in our own messages."""
    return exact(text).replace("\n", "\\n").replace("\t", " ")


class Screen:
    """Filters one stream for a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._coloured = False

    def close(self) -> bytes:
        return self.feed(b"", final=True)

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        text = self._held + self._decoder.decode(data, final)
        open_end = None if final else _UNFINISHED.search(text)
        cut = (
            open_end.start()
            if open_end and len(text) - open_end.start() < _LONGEST_SGR
            else len(text)
        )
        text, self._held = text[:cut], text[cut:]
        shown = safe(text)
        if colours := _SGR.findall(shown):
            self._coloured = colours[-1] not in (RESET, "\x1b[m")
        if final and self._coloured:
            shown += RESET
        return shown.encode()
