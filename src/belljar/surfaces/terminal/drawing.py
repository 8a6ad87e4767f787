"""What a program in the sandbox sends to its terminal, made fit for the person's own.

A terminal obeys what it is sent. Programs need to draw: colours, the cursor, erasing, scrolling, the alternate screen,
bracketed paste, the mouse. They must not set the clipboard or the title, ask questions whose answers are typed into
whatever reads next, reprogram keys, reorder text, or erase the lines that scrolled away. So this is an allow-list:
`Drawing` takes the stream apart as a terminal would (text, control, ESC, CSI, string) and passes on only whole
sequences that it knows. The rest is dropped.
It remembers the modes that were switched and undoes them at the end. What a program asks, queries.py answers.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable

from belljar.patterns import lazy_pattern
from belljar.surfaces.terminal.queries import Cursor, Size, answer

LONGEST = 64
"""Characters of one sequence; a longer one is none of those that are allowed."""
REPLACEMENT = "�"

_COLOURED = r"\x1b\[(?:(?:[0-79]|[1-9][0-9]{1,2})(?:;(?:[0-79]|[1-9][0-9]{1,2})){0,15})?m"
"""Of these most output is made; none of them conceals."""
_DRAWN = lazy_pattern(
    "(?:[^\x00-\x06\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]++"
    f"|{_COLOURED})*"
)
_COLOURS = lazy_pattern(_COLOURED)
_STRINGS = frozenset("PX]^_k")  # DCS, SOS, OSC, PM, APC, a title of screen and tmux: up to ST or BEL
_STRING_END = lazy_pattern("[\a\x18\x1a\x1b\x9c]")
_ESCAPES = lazy_pattern(r"[78=>DEM]|[()][0AB]")
_UNFINISHED_ESCAPE = lazy_pattern(r"[ -/]{0,2}")
_CSI = lazy_pattern(r"[0-?]*[ -/]*")
_PLAIN = lazy_pattern(r"(?:[0-9]{0,4};)*[0-9]{0,4}[@A-IKLMPSXZ`abdefr]|[0-2]?J|[0-9]?T|[su]|4[hl]|[0-6]? q|!p")
_SGR = lazy_pattern(r"[0-9;:]*m")
_CONCEAL = lazy_pattern(r"(?:^|;)0*8(?=;|m)")
_COLOUR = lazy_pattern(r"(?:^|(?<=;))[345]8;(?:5;[0-9]*|2;[0-9]*;[0-9]*;[0-9]*)")
_PRIVATE = lazy_pattern(r"\?([0-9;]+)([hl])")

ON_BY_DEFAULT = frozenset((7, 25))
"""Wrapping at the margin, and a cursor that shows."""
MODES = ON_BY_DEFAULT | frozenset(
    (1, 5, 6, 12, 47, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1048, 1049, 2004, 2026)
)
"""Cursor keys, reverse video, origin, blinking, alternate screen, keypad, mouse, focus, bracketed paste, one frame."""

_NOT_UNDONE = frozenset((12, 1048))  # blinking is a matter of taste; a saved place was only saved


class Drawing:
    """One program's output on its way to the terminal; bytes in as they come, bytes out.

    `reply` gets the answers to what the program asks, for the program to read; it may drop them, and must not wait.
    """

    def __init__(self, size: Size = lambda: (24, 80), reply: Callable[[bytes], None] = lambda data: None) -> None:
        self.reply = reply
        self._size, self._cursor = size, Cursor(size)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of a sequence
        self._in_string = False
        self._modes: set[int] = set()  # switched away from their default
        self._undo: dict[str, str] = {}

    def feed(self, data: bytes) -> bytes:
        text = self._held + self._decoder.decode(data)
        self._held = ""
        return "".join(self._passed(text)).encode()

    def close(self) -> bytes:
        """Whatever brings the terminal back to how the program found it."""
        self._held, self._in_string = "", False
        modes = [f"\x1b[?{mode}{'h' if mode in ON_BY_DEFAULT else 'l'}" for mode in sorted(self._modes)]
        text = "".join((*modes, *self._undo.values()))
        self._modes, self._undo = set(), {}
        return text.encode()

    def _passed(self, text: str) -> list[str]:
        out: list[str] = []
        at = 0
        while at < len(text):
            if self._in_string:
                at = self._skip_string(text, at)
                continue
            found = _DRAWN.match(text, at)
            assert found is not None
            if found[0]:
                out.append(self._drawn(found[0]))
            at = found.end() + 1
            if at > len(text):
                break
            if text[at - 1] != "\x1b":
                out.append("" if text[at - 1] < "\xa0" else REPLACEMENT)
                continue
            end = self._sequence(text, at, out)
            if end is None:  # its rest is still to come
                self._held = text[at - 1 :]
                break
            at = end
        return out

    def _drawn(self, text: str) -> str:
        plain = text
        if "\x1b" in text:
            self._undo["m"] = "\x1b[0m"
            plain = _COLOURS.sub("", text)
        self._cursor.text(plain)
        return text

    def _skip_string(self, text: str, at: int) -> int:
        found = _STRING_END.search(text, at)
        if found is None:
            return len(text)
        self._in_string = False
        return found.start() if found[0] == "\x1b" else found.end()

    def _sequence(self, text: str, at: int, out: list[str]) -> int | None:
        """Behind an ESC at `at`; where to go on."""
        if at == len(text):
            return None
        if text[at] in _STRINGS:
            self._in_string = True
            return at + 1
        csi = text[at] == "["
        body = at + csi
        found = (_CSI if csi else _UNFINISHED_ESCAPE).match(text, body)
        assert found is not None
        end = found.end()
        if end - at > LONGEST:
            return end
        if end == len(text):
            return None
        if not "0" <= text[end] <= "~":  # broken off by a control, which is looked at next
            return end
        whole = text[body : end + 1]
        out.append(self._csi(whole) if csi else self._escape(whole))
        return end + 1

    def _escape(self, body: str) -> str:
        if not _ESCAPES.fullmatch(body):
            return ""
        self._cursor.escape(body)
        if body[0] in "()":
            self._undo[body[0]] = f"\x1b{body[0]}B"
        elif body in "=>":
            self._undo["="] = "\x1b>"
        return f"\x1b{body}"

    def _csi(self, body: str) -> str:
        if private := _PRIVATE.fullmatch(body):
            return self._switch(private[1], private[2])
        if _SGR.fullmatch(body):
            if _CONCEAL.search(_COLOUR.sub("", body)):  # text that is there and does not show
                return ""
            self._undo["m"] = "\x1b[0m"
        elif not _PLAIN.fullmatch(body):
            if said := answer(body, self._cursor, self._size, self._is_on):
                self.reply(said.encode())
            return ""
        elif body.endswith("r"):
            self._undo["r"] = "\x1b7\x1b[r\x1b8"
        elif body.endswith(" q"):
            self._undo["q"] = "\x1b[0 q"
        elif body.endswith(("h", "l")):
            self._undo["4"] = "\x1b[4l"
        self._cursor.csi(body)
        return f"\x1b[{body}"

    def _is_on(self, mode: int) -> int:
        """As a terminal reports it: 1 on, 2 off, 0 unknown."""
        if mode not in MODES:
            return 0
        return 1 if (mode in ON_BY_DEFAULT) != (mode in self._modes) else 2

    def _switch(self, numbers: str, way: str) -> str:
        modes = [int(number) for number in numbers.split(";") if number and int(number) in MODES]
        for mode in modes:
            if mode in _NOT_UNDONE:
                continue
            if (way == "h") == (mode in ON_BY_DEFAULT):
                self._modes.discard(mode)
            else:
                self._modes.add(mode)
        return f"\x1b[?{';'.join(map(str, modes))}{way}" if modes else ""
