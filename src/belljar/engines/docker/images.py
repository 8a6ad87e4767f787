"""The image verbs of a Docker-compatible engine (`belljar.images.ImageStore`); they block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from docker import APIClient
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag

from belljar.errors import EngineError

# A registry that cannot be reached must not hold up the way that needs none.
REGISTRY_SECONDS = 10.0


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except (DockerException, OSError) as error:
        said = error.explanation if isinstance(error, APIError) else error
        raise EngineError(f"{doing}: {said}") from error


class DockerImages:
    def __init__(self, connect: Callable[[float | None], APIClient]) -> None:
        """`connect(timeout)` makes a client of the engine, `None` for one that waits as long as it takes."""
        self._connect_images = connect

    @contextmanager
    def _images_client(self, doing: str, timeout: float | None = 60) -> Iterator[APIClient]:
        with _translated(doing):
            client = self._connect_images(timeout)
            try:
                yield client
            finally:
                client.close()

    def image_exists(self, reference: str) -> bool:
        with self._images_client(f"looking for {reference}") as client:
            try:
                client.inspect_image(reference)
            except ImageNotFound:
                return False
            return True

    def image_import(self, tar: Path, reference: str, changes: list[str]) -> None:
        repository, tag = parse_repository_tag(reference)
        with self._images_client(f"importing {reference}", timeout=None) as client:
            client.import_image(str(tar), repository=repository, tag=tag, changes=changes)

    def image_build(
        self,
        context: IO[bytes],
        dockerfile: str,
        reference: str,
        *,
        arguments: dict[str, str],
        labels: dict[str, str],
        report: Callable[[str], None],
    ) -> None:
        with self._images_client(f"building {reference}", timeout=None) as client:
            lines = client.build(
                fileobj=context, custom_context=True, dockerfile=dockerfile, tag=reference,
                buildargs=arguments, labels=labels, rm=True, forcerm=True, decode=True,
            )  # fmt: skip
            for line in lines:
                if "error" in line:
                    raise EngineError(f"building {reference}: {line['error'].strip()}")
                report(line.get("stream", ""))

    def image_tag(self, reference: str, alias: str) -> None:
        repository, tag = parse_repository_tag(alias)
        with self._images_client(f"tagging {reference}") as client:
            client.tag(reference, repository, tag, force=True)

    def image_list(self, label: str) -> list[dict[str, Any]]:
        with self._images_client("listing the images") as client:
            found: list[dict[str, Any]] = client.images(filters={"label": label})
            return found

    def registry_has(self, reference: str) -> bool:
        client = self._connect_images(REGISTRY_SECONDS)
        try:
            client.inspect_distribution(reference)
        except (DockerException, OSError):
            return False
        finally:
            client.close()
        return True
