"""Filters what a program in the sandbox sends to its terminal, before it reaches the user's.

A terminal obeys what it is sent. Programs need to draw: colours, the cursor, erasing, scrolling, the alternate screen,
bracketed paste, the mouse. They must not set the clipboard or the title, send queries (the terminal types the answer,
and the next program reads it), reprogram keys, reorder text, or erase the scrollback. So this is an allow-list:
`Drawing` parses the stream as a terminal does (text, control, ESC, CSI, string) and passes on only complete sequences
that it knows. The rest is dropped. At the end it resets the modes that the program switched. queries.py answers the
program's queries.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from belljar.patterns import lazy_pattern
from belljar.surfaces.terminal.queries import Cursor, Size, answer

LONGEST = 64
"""Characters of one sequence; all allowed ones are shorter."""
REPLACEMENT = "�"

_COLOURED = (
    r"\x1b\[(?:(?:[0-79]|[1-9][0-9]{1,2})(?:;(?:[0-79]|[1-9][0-9]{1,2})){0,15})?m"
)
"""The colours that most output uses; none of them conceals text."""
_DRAWN = lazy_pattern(
    "(?:[^\x00-\x06\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]++"
    f"|{_COLOURED})*"
)
_COLOURS = lazy_pattern(_COLOURED)
_STRINGS = frozenset(
    "PX]^_k"
)  # DCS, SOS, OSC, PM, APC, a title of screen and tmux: up to ST or BEL
_STRING_END = lazy_pattern("[\a\x18\x1a\x1b\x9c]")
_ESCAPES = lazy_pattern(r"[78=>DEM]|[()][0AB]")
_UNFINISHED_ESCAPE = lazy_pattern(r"[ -/]{0,2}")
_CSI = lazy_pattern(r"[0-?]*[ -/]*")
_PLAIN = lazy_pattern(
    r"(?:[0-9]{0,4};)*[0-9]{0,4}[@A-IKLMPSXZ`abdefr]|[0-2]?J|[0-9]?T|[su]|4[hl]|[0-6]? q|!p"
)
_SGR = lazy_pattern(r"[0-9;:]*m")
_CONCEAL = lazy_pattern(r"(?:^|;)0*8(?=;|m)")
_COLOUR = lazy_pattern(r"(?:^|(?<=;))[345]8;(?:5;[0-9]*|2;[0-9]*;[0-9]*;[0-9]*)")
_PRIVATE = lazy_pattern(r"\?([0-9;]+)([hl])")

ON_BY_DEFAULT = frozenset((7, 25))
"""Wrapping at the margin, and a visible cursor."""
MODES = ON_BY_DEFAULT | frozenset(
    (
        1,
        5,
        6,
        12,
        47,
        66,
        1000,
        1002,
        1003,
        1004,
        1005,
        1006,
        1015,
        1016,
        1047,
        1048,
        1049,
        2004,
        2026,
    )
)
"""Cursor keys, reverse video, origin, blinking, alternate screen, keypad, mouse, focus, bracketed paste, one frame."""

_NOT_RESET = frozenset((12, 1048))  # a blinking cursor and a saved position do no harm


class Drawing:
    """Filters one program's output: bytes in, bytes out.

    `reply` gets the answers to the program's queries. It passes them to the program or drops them, and must not block.
    """

    def __init__(
        self,
        size: Size = lambda: (24, 80),
        reply: Callable[[bytes], None] = lambda data: None,
    ) -> None:
        self.reply = reply
        self._size, self._cursor = size, Cursor(size)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of a sequence that is not complete yet
        self._in_string = False
        self._modes: set[int] = set()  # modes that differ from their default
        self._resets: dict[str, str] = {}

    def feed(self, data: bytes) -> bytes:
        text = self._held + self._decoder.decode(data)
        self._held = ""
        return "".join(self._passed(text)).encode()

    def close(self) -> bytes:
        """The sequences that reset what the program changed."""
        self._held, self._in_string = "", False
        modes = [
            f"\x1b[?{mode}{'h' if mode in ON_BY_DEFAULT else 'l'}"
            for mode in sorted(self._modes)
        ]
        text = "".join((*modes, *self._resets.values()))
        self._modes, self._resets = set(), {}
        return text.encode()

    def _passed(self, text: str) -> list[str]:
        out: list[str] = []
        at = 0
        while at < len(text):
            if self._in_string:
                at = self._skip_string(text, at)
                continue
            drawn = _DRAWN.match(text, at)
            assert drawn is not None
            if drawn[0]:
                out.append(self._drawn(drawn[0]))
            at = drawn.end() + 1
            if at > len(text):
                break
            if text[at - 1] != "\x1b":
                out.append("" if text[at - 1] < "\xa0" else REPLACEMENT)
                continue
            end = self._sequence(text, at, out)
            if end is None:  # incomplete
                self._held = text[at - 1 :]
                break
            at = end
        return out

    def _drawn(self, text: str) -> str:
        plain = text
        if "\x1b" in text:
            self._resets["m"] = "\x1b[0m"
            plain = _COLOURS.sub("", text)
        self._cursor.text(plain)
        return text

    def _skip_string(self, text: str, at: int) -> int:
        terminator = _STRING_END.search(text, at)
        if terminator is None:
            return len(text)
        self._in_string = False
        return terminator.start() if terminator[0] == "\x1b" else terminator.end()

    def _sequence(self, text: str, at: int, out: list[str]) -> int | None:
        """Handle the sequence whose ESC is before `at`. Returns its end, or None if it is incomplete."""
        if at == len(text):
            return None
        if text[at] in _STRINGS:
            self._in_string = True
            return at + 1
        csi = text[at] == "["
        body = at + csi
        parameters = (_CSI if csi else _UNFINISHED_ESCAPE).match(text, body)
        assert parameters is not None
        end = parameters.end()
        if end - at > LONGEST:
            return end
        if end == len(text):
            return None
        if (
            not "0" <= text[end] <= "~"
        ):  # interrupted by a control character, which comes next
            return end
        whole = text[body : end + 1]
        out.append(self._csi(whole) if csi else self._escape(whole))
        return end + 1

    def _escape(self, body: str) -> str:
        if not _ESCAPES.fullmatch(body):
            return ""
        self._cursor.escape(body)
        if body[0] in "()":
            self._resets[body[0]] = f"\x1b{body[0]}B"
        elif body in "=>":
            self._resets["="] = "\x1b>"
        return f"\x1b{body}"

    def _csi(self, body: str) -> str:
        if private := _PRIVATE.fullmatch(body):
            return self._switch(private[1], private[2])
        if _SGR.fullmatch(body):
            if _CONCEAL.search(_COLOUR.sub("", body)):  # invisible text
                return ""
            self._resets["m"] = "\x1b[0m"
        elif not _PLAIN.fullmatch(body):
            if reply := answer(body, self._cursor, self._size, self._is_on):
                self.reply(reply.encode())
            return ""
        elif body.endswith("r"):
            self._resets["r"] = "\x1b7\x1b[r\x1b8"
        elif body.endswith(" q"):
            self._resets["q"] = "\x1b[0 q"
        elif body.endswith(("h", "l")):
            self._resets["4"] = "\x1b[4l"
        self._cursor.csi(body)
        return f"\x1b[{body}"

    def _is_on(self, mode: int) -> int:
        """As a terminal reports it: 1 on, 2 off, 0 unknown."""
        if mode not in MODES:
            return 0
        return 1 if (mode in ON_BY_DEFAULT) != (mode in self._modes) else 2

    def _switch(self, numbers: str, way: str) -> str:
        modes = [
            int(number)
            for number in numbers.split(";")
            if number and int(number) in MODES
        ]
        for mode in modes:
            if mode in _NOT_RESET:
                continue
            if (way == "h") == (mode in ON_BY_DEFAULT):
                self._modes.discard(mode)
            else:
                self._modes.add(mode)
        return f"\x1b[?{';'.join(map(str, modes))}{way}" if modes else ""
