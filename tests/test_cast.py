"""The README's picture shows what the commands print today."""

from tests import cast


def test_the_picture_is_what_a_terminal_shows(base_image: str) -> None:
    """Wrong? `make cast` draws it anew."""
    assert cast.drawn(list(cast.lines())) == cast.PICTURE.read_text()
