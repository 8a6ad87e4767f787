"""The image verbs of an engine with Docker's API (`images.image_store.ImageStore`).

Building and importing are rare and need streams, so docker-py does them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar.engines.docker.client import Answered, Client, expected_shape, quote
from belljar.engines.spec import Image
from belljar.errors import EngineError
from belljar.images.image_store import Recipe, StoredImage

if TYPE_CHECKING:
    from docker import APIClient

# Do not wait longer for an unreachable registry: an image can be built without one.
REGISTRY_SECONDS = 10.0


class DockerImages:
    fetch_with = "docker pull"
    holds_imports = False

    def __init__(self, client: Client, name_prefixes: tuple[str, ...] = ()) -> None:
        self.client, self.name_prefixes = client, name_prefixes
        self.kept_by = client.endpoint.host

    @contextmanager
    def _docker_py(
        self, doing: str, timeout: float | None = None
    ) -> Iterator[APIClient]:
        from docker import APIClient
        from docker.errors import APIError, DockerException
        from docker.tls import TLSConfig

        tls: dict[str, Any] = {}
        if directory := self.client.endpoint.certificates:
            pair = (f"{directory}/cert.pem", f"{directory}/key.pem")
            tls = {
                "tls": TLSConfig(
                    client_cert=pair, ca_cert=f"{directory}/ca.pem", verify=True
                )
            }
        try:
            with closing(
                APIClient(
                    self.client.endpoint.host, version="auto", timeout=timeout, **tls
                )
            ) as client:
                yield client
        except (DockerException, OSError) as error:
            reason = error.explanation if isinstance(error, APIError) else error
            raise EngineError(f"{doing}: {reason}") from error

    def image(self, reference: str) -> Image | None:
        found = self._inspected(reference)
        if found is None:
            return None
        with expected_shape(f"looking at image {reference}"):
            config = found.get("Config") or {}
            return Image(
                str(found["Id"]),
                tuple(config.get("Env") or ()),
                tuple(sorted(config.get("Volumes") or ())),
            )

    def image_size(self, reference: str) -> int | None:
        found = self._inspected(reference)
        return int(found.get("Size") or 0) if found is not None else None

    def _inspected(self, reference: str) -> dict[str, Any] | None:
        doing = f"looking at image {reference}"
        with expected_shape(doing):
            try:
                found = self.client.ask(
                    doing, "GET", f"/images/{quote(reference)}/json"
                )
            except Answered as error:
                if error.status == 404:
                    return None
                raise
            return dict(found)

    def image_import(
        self, tar: Path, reference: str, *, cwd: str, labels: dict[str, str]
    ) -> None:
        changes = [
            f"WORKDIR {cwd}",
            'CMD ["bash"]',
            *(f"LABEL {key}={value}" for key, value in labels.items()),
        ]
        with self._docker_py(f"importing {reference}") as client:
            answer = client.import_image(str(tar), changes=changes)
        self.image_tag(
            json.loads(answer)["status"], reference
        )  # Podman 4.3 would drop the tag of a name in the import

    def image_save(self, reference: str, archive: Path) -> None:
        with (
            self._docker_py(f"saving {reference}") as client,
            open(archive, "xb") as file,
        ):
            for chunk in client.get_image(reference):
                file.write(chunk)

    def image_load(self, archive: Path) -> None:
        with self._docker_py("loading an image") as client, open(archive, "rb") as file:
            for line in client.load_image(file) or ():
                if "error" in line:
                    raise EngineError(f"loading an image: {line['error'].strip()}")

    def image_build(self, recipe: Recipe, report: Callable[[str], None]) -> None:
        with self._docker_py(f"building {recipe.reference}") as client:
            lines = client.build(
                fileobj=recipe.context,
                custom_context=True,
                dockerfile=recipe.dockerfile,
                tag=recipe.reference,
                buildargs=recipe.arguments,
                labels=recipe.labels,
                rm=True,
                forcerm=True,
                decode=True,
            )
            for line in lines:
                if "error" in line:
                    raise EngineError(
                        f"building {recipe.reference}: {line['error'].strip()}"
                    )
                report(line.get("stream", ""))

    def image_tag(self, reference: str, alias: str) -> None:
        repository, _, tag = alias.rpartition(":")
        path = (
            f"/images/{quote(reference)}/tag?repo={quote(repository)}&tag={quote(tag)}"
        )
        self.client.ask(f"tagging {reference}", "POST", path)

    def image_list(self, label: str) -> list[StoredImage]:
        filters = quote(json.dumps({"label": [label]}))
        with expected_shape(doing := "listing the images"):
            images = self.client.ask(doing, "GET", f"/images/json?filters={filters}")
            return [_stored(image, self.name_prefixes) for image in images]

    def registry_has(self, reference: str) -> bool:
        with (
            suppress(EngineError),
            self._docker_py(f"looking for {reference}", REGISTRY_SECONDS) as client,
        ):
            client.inspect_distribution(reference)
            return True
        return False


def _stored(image: dict[str, Any], prefixes: tuple[str, ...]) -> StoredImage:
    tags = (str(tag) for tag in image.get("RepoTags") or [] if tag != "<none>:<none>")
    names = tuple(
        tag.removeprefix(
            next((prefix for prefix in prefixes if tag.startswith(prefix)), "")
        )
        for tag in tags
    )
    return StoredImage(
        str(image["Id"]),
        names,
        dict(image.get("Labels") or {}),
        int(image["Size"]),
        float(image["Created"]),
    )
