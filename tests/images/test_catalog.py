from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belljar import resources
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import EngineError, ImageMissing, UsageError
from belljar.images import catalog
from belljar.images.bootstrap import bootstrap

PROMISED = "bash git make python3 rg jq curl awk sed grep find diff patch file less tree bc xz zip unzip ps"


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the recipes that a test may change, and a cache of its own."""
    copy = tmp_path / "sandbox-images"
    shutil.copytree(resources.directory("sandbox-images"), copy)
    monkeypatch.setattr(catalog.resources, "directory", lambda name: copy)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    catalog.reference.cache_clear()
    yield copy
    catalog.reference.cache_clear()


class Registry(DockerEngine):
    """The real engine, on a machine where a registry would answer or not."""

    answers = True
    asked = 0
    builds = 0

    def registry_has(self, reference: str) -> bool:
        self.asked += 1
        return self.answers

    def image_build(self, *args: Any, **options: Any) -> None:
        self.builds += 1
        super().image_build(*args, **options)


@pytest.fixture
def registry(engine: DockerEngine) -> Registry:
    return Registry(engine.client.endpoint)


@pytest.fixture
def tiny(recipes: Path, base_image: str, monkeypatch: pytest.MonkeyPatch, docker_client: Any) -> Iterator[str]:
    """A recipe on top of base that needs no network."""
    (recipes / "tiny").mkdir()
    (recipes / "tiny/packages").write_text("# none\n")
    (recipes / "tiny/Dockerfile").write_text("ARG FROM\nFROM ${FROM}\nCOPY tiny/packages /tiny\n")
    monkeypatch.setitem(catalog.PARENTS, "tiny", "base")
    yield "tiny"
    for image in docker_client.images.list("belljar/tiny"):
        docker_client.images.remove(image.id, force=True)


def inside(docker_client: Any, image: str, script: str) -> str:
    done = docker_client.containers.run(image, ["bash", "-c", script], network_disabled=True, remove=True)
    return str(done.decode())


def test_its_bash_starts_without_a_linker_and_knows_users_and_characters(base_image: str, docker_client: Any) -> None:
    script = "file -L /bin/bash | grep -o 'statically linked'; echo ~sandbox ~root; LC_CTYPE=C.UTF-8; x=äö€; echo ${#x}"
    assert inside(docker_client, base_image, script) == "statically linked\n/home/sandbox /root\n3\n"


def test_an_image_of_ours_is_named_by_its_recipe(recipes: Path) -> None:
    before = catalog.reference("python")
    (recipes / "base/packages").write_text("bash\n")
    catalog.reference.cache_clear()
    assert before.startswith("belljar/python:")
    assert catalog.reference("python") != before


def test_any_other_image_is_used_as_it_is() -> None:
    assert catalog.reference("myimage:tag") == "myimage:tag"


def test_an_image_that_is_there_is_not_built_again(engine: DockerEngine, base_image: str) -> None:
    said: list[str] = []
    assert catalog.ensure(engine, "base", lambda fraction, text: said.append(text)) == base_image
    assert said == []


def test_a_missing_image_of_somebody_else_says_what_to_do(engine: DockerEngine) -> None:
    with pytest.raises(ImageMissing, match="docker pull nobody/nothing:1"):
        catalog.ensure(engine, "nobody/nothing:1")


def test_there_is_no_recipe_for_an_unknown_name(engine: DockerEngine) -> None:
    with pytest.raises(UsageError, match="choose from base, python, node, dev"):
        catalog.build(engine, "perl")


def test_base_has_the_everyday_tools_and_the_mount_points(base_image: str, docker_client: Any) -> None:
    script = f"for tool in {PROMISED}; do command -v $tool >/dev/null || echo missing $tool; done"
    assert inside(docker_client, base_image, f"{script}; id -u sandbox") == "1000\n"
    assert inside(docker_client, base_image, "stat -c %n:%u /workspace /home/sandbox /.belljar; pwd") == (
        "/workspace:1000\n/home/sandbox:1000\n/.belljar:0\n/workspace\n"
    )


def test_nothing_in_base_is_setuid(base_image: str, docker_client: Any) -> None:
    assert inside(docker_client, base_image, "find / -xdev -type f -perm /6000") == ""


def test_base_is_also_tagged_latest_and_listed_as_current(engine: DockerEngine, base_image: str) -> None:
    catalog.build(engine, "base")
    assert engine.image_exists("belljar/base:latest")
    (listed,) = [image for image in catalog.listing(engine) if image.name == "base" and image.current]
    assert listed.reference == base_image
    assert listed.as_dict()["size"] == listed.size > 50_000_000


def test_where_a_registry_answers_the_dockerfile_is_built_on_its_parent(
    registry: Registry, tiny: str, base_image: str, docker_client: Any
) -> None:
    told: list[tuple[float | None, str]] = []
    made = catalog.ensure(registry, tiny, lambda fraction, text: told.append((fraction, text)))
    assert inside(docker_client, made, "cat /tiny") == "# none\n"
    assert docker_client.images.get(made).labels["org.belljar.image"] == "tiny"
    fractions = [fraction for fraction, _ in told if fraction is not None]
    assert fractions == sorted(fractions)
    assert told[-1] == (1.0, f"{made} is ready")


def test_two_that_need_an_image_at_once_build_it_once(registry: Registry, tiny: str) -> None:
    threads = [threading.Thread(target=catalog.ensure, args=(registry, tiny)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.builds == 1


def test_a_dockerfile_that_fails_gives_one_clear_error(registry: Registry, tiny: str, recipes: Path) -> None:
    (recipes / "tiny/Dockerfile").write_text("ARG FROM\nFROM ${FROM}\nRUN exit 7\n")
    with pytest.raises(EngineError, match=r"building belljar/tiny:\w+: .*returned a non-zero code: 7"):
        catalog.ensure(registry, tiny)
    assert not registry.image_exists(catalog.reference(tiny))


def test_a_registry_that_is_silent_is_not_asked_again_for_a_while(registry: Registry, recipes: Path) -> None:
    registry.answers = False
    assert not catalog._registry_answers(registry)
    assert not catalog._registry_answers(registry)
    assert registry.asked == 1


def test_a_bootstrap_that_fails_says_why_and_imports_nothing(registry: Registry, tiny: str, recipes: Path) -> None:
    registry.answers = False
    (recipes / "tiny/packages").write_text("no-such-package-as-this\n")
    with pytest.raises(ImageMissing, match="no-such-package-as-this"):
        catalog.ensure(registry, tiny)
    assert not registry.image_exists(catalog.reference(tiny))


def test_a_bootstrap_without_mmdebstrap_says_what_to_install_and_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\n: > {tmp_path}/installed\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageMissing, match="install mmdebstrap"):
        bootstrap(["bash"], [tmp_path / "finish.sh"], tmp_path / "root.tar", lambda fraction, text: None)
    assert not (tmp_path / "installed").exists()


def test_a_machine_without_an_init_is_named() -> None:
    with pytest.raises(EngineError, match="no init for riscv64"):
        resources.init_binary("riscv64")
