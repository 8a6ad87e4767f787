"""A standard input: text that `read` takes line by line."""

from .marks import UNKNOWN, known


class Feed:
    __slots__ = ("outside", "text")

    def __init__(self, text: str = "", outside: bool = False) -> None:
        self.text, self.outside = text, outside  # `outside`: whatever stands before the whole command

    def line(self) -> str:
        line, _, rest = self.text.partition("\n")
        if known(line):
            self.text = rest
        return line

    def take(self) -> str:
        """All of it at once."""
        text, self.text = self.text or UNKNOWN, ""
        return text
