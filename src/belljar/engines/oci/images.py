"""The images of the engine `oci`: Belljar's own store, as an `images.image_store.ImageStore`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from belljar.engines.spec import Image
from belljar.errors import EngineError
from belljar.images import catalog
from belljar.images.image_store import Recipe, StoredImage
from belljar.images.store import Store


class OciImages:
    fetch_with = catalog.OCI_FETCHES
    holds_imports = True
    kept_by = "Belljar's own store"

    def __init__(self, store: Store) -> None:
        self._store = store

    def image(self, reference: str) -> Image | None:
        found = self._store.find(reference, with_names=False)
        return Image(found.id, found.env, found.volumes) if found else None

    def image_import(
        self, tar: Path, reference: str, *, cwd: str, labels: dict[str, str]
    ) -> None:
        from belljar.images.importing import import_root

        import_root(self._store, tar, [reference], labels)

    def image_size(self, reference: str) -> int | None:
        found = self._store.find(reference, with_names=False)
        return found.size if found else None

    def image_save(self, reference: str, archive: Path) -> None:
        from belljar.images.exporting import export_image

        image = self._store.find(reference)
        if image is None:
            raise EngineError(f"no image {reference!r} in the store")
        export_image(self._store, image, archive)

    def image_load(self, archive: Path) -> None:
        from belljar.images.importing import import_images

        import_images(self._store, str(archive))

    def image_build(self, recipe: Recipe, report: Callable[[str], None]) -> None:
        from belljar.images import buildah

        buildah.build(self._store, recipe, report)

    def image_tag(self, reference: str, alias: str) -> None:
        self._store.tag(reference, alias)

    def image_list(self, label: str) -> list[StoredImage]:
        return [
            StoredImage(each.id, each.names, each.labels, each.size, each.created)
            for each in self._store.images()
            if label in each.labels
        ]

    def registry_has(self, reference: str) -> bool:
        return False  # its images are always built from Debian packages
