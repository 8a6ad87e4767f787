"""What an engine's images must be able to do, for those who list, build and share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Protocol

from belljar.records import record


def no_others() -> Iterable[ImageStore]:
    return ()


@record
class StoredImage:
    """An image that an engine has."""

    id: str
    names: tuple[str, ...]
    """With tags: belljar/base:latest …"""
    labels: Mapping[str, str]
    size: int
    created: float


@record
class Recipe:
    """An image to be built from a Dockerfile."""

    reference: str
    context: IO[bytes]
    """A tar that holds the Dockerfile."""
    dockerfile: str
    arguments: dict[str, str]
    labels: dict[str, str]
    parents: tuple[str, ...] = ()
    """Images that it begins with."""


class FoundImage(Protocol):
    @property
    def ref(self) -> str:
        """Its id."""


class ImageStore(Protocol):
    """Where images are found and made. An engine has one, or leaves that to a registry (`Engine.images`)."""

    fetch_with: str
    """The command that gets an image from elsewhere (`docker pull`)."""
    holds_imports: bool
    """Whether it is the store that `belljar images import` fills."""
    kept_by: str
    """Who keeps the images, for people: Docker …"""

    def image(self, reference: str) -> FoundImage | None:
        """None: there is no such image."""

    def image_size(self, reference: str) -> int | None:
        """In bytes; None: there is no such image."""

    def image_save(self, reference: str, archive: Path) -> None:
        """Write it as `docker save` does."""

    def image_load(self, archive: Path) -> None:
        """Take the images of an archive that `images.exporting` wrote, with their names."""

    def image_import(
        self, tar: Path, reference: str, *, cwd: str, labels: dict[str, str]
    ) -> None:
        """Make an image from the tar of a root file system."""

    def image_build(self, recipe: Recipe, report: Callable[[str], None]) -> None:
        """`report` gets what the build prints."""

    def image_tag(self, reference: str, alias: str) -> None: ...
    def image_list(self, label: str) -> list[StoredImage]: ...
    def registry_has(self, reference: str) -> bool:
        """Whether a registry can be reached that has this image."""


Others = Callable[[], Iterable["ImageStore"]]
"""The image stores of this machine's other engines, looked for only when they are needed."""
