from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.images.conftest import Registry

from belljar.engines.docker.engine import DockerEngine
from belljar.errors import EngineError, ImageMissing, UsageError
from belljar.images import catalog
from belljar.images.image_store import StoredImage

PROMISED = "bash git make python3 rg jq curl awk sed grep find diff patch file less tree bc xz zip unzip ps"


def inside(docker_client: Any, image: str, script: str) -> str:
    done = docker_client.containers.run(
        image, ["bash", "-c", script], network_disabled=True, remove=True
    )
    return str(done.decode())


def test_the_base_image_s_bash_is_static_and_knows_users_and_utf8(
    base_image: str, docker_client: Any
) -> None:
    script = "file -L /bin/bash | grep -o 'statically linked'; echo ~sandbox ~root; LC_CTYPE=C.UTF-8; x=äö€; echo ${#x}"
    assert (
        inside(docker_client, base_image, script)
        == "statically linked\n/home/sandbox /root\n3\n"
    )


def test_an_image_of_ours_is_named_by_its_recipe(recipes: Path) -> None:
    before = catalog.reference("python")
    (recipes / "base/packages").write_text("bash\n")
    catalog.reference.cache_clear()
    assert before.startswith("belljar/python:")
    assert catalog.reference("python") != before


def test_an_image_that_is_not_ours_is_used_as_it_is() -> None:
    assert catalog.reference("myimage:tag") == "myimage:tag"


def test_an_existing_image_is_not_built_again(
    engine: DockerEngine, base_image: str
) -> None:
    said: list[str] = []
    assert (
        catalog.ensure(engine.images, "base", lambda fraction, text: said.append(text))
        == base_image
    )
    assert said == []


def test_a_missing_foreign_image_says_what_to_do(engine: DockerEngine) -> None:
    with pytest.raises(ImageMissing, match="docker pull nobody/nothing:1"):
        catalog.ensure(engine.images, "nobody/nothing:1")


def test_an_image_made_from_ours_is_not_listed_as_ours_but_by_each_of_its_names() -> (
    None
):
    """The new image inherits our labels."""
    labels = {catalog.LABEL: "base", catalog.RECIPE_LABEL: "x"}
    ours = StoredImage(
        "sha256:1", ("belljar/base:0123", "belljar/base:latest"), labels, 1, 0.0
    )
    theirs = StoredImage("sha256:2", ("tools:1", "house/tools:1"), labels, 1, 0.0)
    listed = catalog.listing(SimpleNamespace(image_list=lambda label: [ours, theirs]))  # type: ignore[arg-type]
    assert [(image.name, image.reference) for image in listed] == [
        ("base", "belljar/base:0123"),
        ("house/tools:1", "house/tools:1"),
        ("tools:1", "tools:1"),
    ]


def test_there_is_no_recipe_for_an_unknown_name(engine: DockerEngine) -> None:
    with pytest.raises(UsageError, match="choose from base, python, node, dev"):
        catalog.build(engine.images, "perl")


def test_base_has_the_everyday_tools_and_the_mount_points(
    base_image: str, docker_client: Any
) -> None:
    script = f"for tool in {PROMISED}; do command -v $tool >/dev/null || echo missing $tool; done"
    assert inside(docker_client, base_image, f"{script}; id -u sandbox") == "1000\n"
    assert inside(
        docker_client, base_image, "stat -c %n:%u /workspace /.belljar; pwd; ls /home"
    ) == ("/workspace:1000\n/.belljar:0\n/workspace\n")


def test_nothing_in_base_is_setuid(base_image: str, docker_client: Any) -> None:
    assert inside(docker_client, base_image, "find / -xdev -type f -perm /6000") == ""


def test_base_is_also_tagged_latest_and_listed_as_current(
    engine: DockerEngine, base_image: str
) -> None:
    catalog.build(engine.images, "base")
    assert engine.image("belljar/base:latest") is not None
    (listed,) = [
        image
        for image in catalog.listing(engine.images)
        if image.name == "base" and image.current
    ]
    assert listed.reference == base_image
    assert listed.size > 50_000_000


def test_where_a_registry_answers_the_dockerfile_is_built_on_its_parent(
    registry: Registry, tiny: str, base_image: str, docker_client: Any
) -> None:
    told: list[tuple[float | None, str]] = []
    made = catalog.ensure(
        registry, tiny, lambda fraction, text: told.append((fraction, text))
    )
    assert inside(docker_client, made, f"cat /{tiny}") == "# none\n"
    assert docker_client.images.get(made).labels["org.belljar.image"] == tiny
    fractions = [fraction for fraction, _ in told if fraction is not None]
    assert fractions == sorted(fractions)
    assert told[-1] == (1.0, f"{made} is ready")


def test_threads_that_need_an_image_at_once_build_it_once(
    registry: Registry, tiny: str
) -> None:
    threads = [
        threading.Thread(target=catalog.ensure, args=(registry, tiny)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.builds == 1


def test_a_dockerfile_that_fails_gives_one_clear_error(
    registry: Registry, tiny: str, recipes: Path
) -> None:
    (recipes / tiny / "Dockerfile").write_text("ARG FROM\nFROM ${FROM}\nRUN exit 7\n")
    with pytest.raises(
        EngineError,
        match=rf"building belljar/{tiny}:\w+: .*returned a non-zero code: 7",
    ):
        catalog.ensure(registry, tiny)
    assert registry.image(catalog.reference(tiny)) is None


def test_a_registry_that_is_silent_is_not_asked_again_for_a_while(
    registry: Registry, recipes: Path
) -> None:
    registry.answers = False
    assert not catalog._registry_answers(registry)
    assert not catalog._registry_answers(registry)
    assert registry.asked == 1


@pytest.mark.root
def test_another_user_s_cache_directory_is_refused(
    engine: DockerEngine,
    base_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`sudo` may keep the caller's HOME. There a link in place of the lock file would empty any file of root's."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "belljar").mkdir()
    (tmp_path / "belljar" / "base.lock").symlink_to(precious)
    os.chown(tmp_path / "belljar", 1000, 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"):
        catalog.build(engine.images, "base")
    assert precious.read_text() == "precious"
