"""An image's settings are overridden where they would weaken a sandbox."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import tenacity

import belljar
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import ProtectionMissing, UsageError

HOSTILE = """
ENV HOME=/root USER=root LD_PRELOAD=/nowhere.so BASH_ENV=/workspace/evil PATH=/opt/tool/bin:/usr/bin:/bin COLOUR=blue
USER 0:0
WORKDIR /root
VOLUME /data /workspace
EXPOSE 8000
STOPSIGNAL SIGKILL
HEALTHCHECK --interval=1s CMD touch /tmp/healthcheck-ran
ENTRYPOINT ["/bin/false"]
CMD ["false"]
"""


@contextmanager
def built(docker_client: Any, base: str, lines: str) -> Iterator[str]:
    """A unique label gives each test run its own image. Otherwise another run could remove it."""
    text = f"FROM {base}\nLABEL run={uuid.uuid4().hex}\n{lines}\n"
    image, _ = docker_client.images.build(fileobj=io.BytesIO(text.encode()), rm=True)
    try:
        yield image.id
    finally:
        _remove_once_unused(docker_client, image.id)


@tenacity.retry(
    stop=tenacity.stop_after_delay(120), wait=tenacity.wait_fixed(0.1), reraise=True
)
def _remove_once_unused(docker_client: Any, image: str) -> None:
    docker_client.images.remove(image, force=True)


@pytest.fixture(scope="module")
def hostile_image(base_image: str, docker_client: Any) -> Iterator[str]:
    with built(docker_client, base_image, HOSTILE) as image:
        yield image


async def test_a_hostile_image_gets_the_same_walls(
    hostile_image: str, workspace: Path, docker_client: Any
) -> None:
    (workspace / "evil").write_text("echo BREACH")
    async with belljar.Session(workspace=workspace, image=hostile_image) as box:
        result = await box.run(
            "id -u; id -g; pwd; echo $HOME $USER $PATH $COLOUR; env | grep -c LD_PRELOAD",
            timeout=60,
        )
        assert result.stderr == ""
        uid = str(box.workspace.identity.uid)
        assert result.stdout.splitlines() == [
            uid, uid, "/workspace", "/home/sandbox sandbox /opt/tool/bin:/usr/bin:/bin blue", "0",
        ]  # fmt: skip
        disk = await box.run(
            "head -c 20M /dev/zero > /data/fill; stat -c %s /data/fill; stat -f -c %T /data",
            timeout=60,
        )
        assert disk.stdout.split() == [str(16 << 20), "tmpfs"]
        inspected = docker_client.api.inspect_container(f"belljar-{box.id}")
        assert inspected["State"].get("Health") is None
        volumes = [
            mount["Name"] for mount in inspected["Mounts"] if mount["Type"] == "volume"
        ]
        assert [name for name in volumes if not name.startswith("belljar-init-")] == []


LEADING_IN = {
    "a link at the workspace's place": "RUN rm -rf /workspace && mkdir /elsewhere && ln -s /elsewhere /workspace",
    "a workspace in our own files' place": "RUN rm -rf /workspace && ln -s /etc /workspace",
    "a way through the kernel's links": "RUN ln -sf /proc/1/root/workspace/below /etc/group",
    "a file of ours that leads into the workspace": "RUN ln -s /workspace/below /etc/gitconfig",
    "an account file that leads to a hook": "RUN ln -sf /workspace/.git/hooks/post-checkout /etc/passwd",
    "a chain of links, one of them relative": "RUN ln -s ../workspace/below /etc/a && ln -sf a /etc/group",
    "a way through a link of the workspace": "RUN ln -sf /workspace/deep/../../below /etc/passwd",
    "scratch that leads into the workspace": "RUN rm -rf /var/tmp && ln -s /workspace/below /var/tmp",
    "home's parent": "RUN rm -rf /home && ln -s /workspace /home",
    "a volume that leads into the workspace": "RUN ln -s /workspace/below /data\nVOLUME /data",
    "a volume inside the workspace": "VOLUME /workspace/below",
    "the same with more slashes": "VOLUME //workspace//below",
}


@pytest.mark.parametrize("line", LEADING_IN.values(), ids=LEADING_IN.keys())
async def test_an_image_that_leads_mounts_into_the_workspace_is_refused(
    engine: DockerEngine,
    base_image: str,
    root_workspace: Path,
    docker_client: Any,
    line: str,
) -> None:
    refusals = (ProtectionMissing, UsageError)
    (root_workspace / ".git/hooks").mkdir(parents=True)
    (root_workspace / "deep").symlink_to(".git/hooks")
    before = sorted(root_workspace.rglob("*"))
    with built(docker_client, base_image, f"USER 0:0\n{line}") as image:
        for _ in range(
            2
        ):  # the second round proves that the refusal was not cached as "harmless"
            # Over a bridge there are fewer mounts to redirect, so the image may also be accepted.
            with (
                pytest.raises(refusals)
                if engine.capabilities.sees_processes
                else suppress(*refusals)
            ):
                await belljar.run(["true"], root_workspace, image=image)
        assert sorted(root_workspace.rglob("*")) == before


async def test_links_within_the_image_are_allowed(
    base_image: str, workspace: Path, docker_client: Any
) -> None:
    lines = "RUN mv /etc/passwd /opt/ && ln -s /opt/passwd /etc/ && rm -rf /var/tmp && ln -s ../tmp /var/tmp"
    with built(docker_client, base_image, f"USER 0:0\n{lines}") as image:
        result = await belljar.run(
            "id; echo x > /var/tmp/x; cat /tmp/x", workspace, image=image
        )
        assert result.output.endswith("x\n")


REDIRECTING = """
RUN rm -rf /.belljar && ln -s /proc/self/cwd /.belljar && mkdir /.belljar-0 && ln -s /proc/self/cwd /.belljar-x
"""


@pytest.fixture(scope="module")
def redirecting_image(base_image: str, docker_client: Any) -> Iterator[str]:
    with built(docker_client, base_image, REDIRECTING) as image:
        yield image


async def test_an_image_cannot_put_its_own_program_in_the_init_s_place(
    redirecting_image: str, workspace: Path
) -> None:
    fake = workspace / "init"
    fake.write_text("#!/bin/bash\necho BREACH > /workspace/breach; sleep 60\n")
    fake.chmod(0o755)
    async with belljar.Session(workspace=workspace, image=redirecting_image) as box:
        assert (await box.run("echo ours", timeout=60)).stdout == "ours\n"
    assert not (workspace / "breach").exists()


async def test_an_image_whose_volume_is_inside_the_workspace_is_refused(
    base_image: str, docker_client: Any, workspace: Path
) -> None:
    volume = "VOLUME /workspace/.git"
    with (
        built(docker_client, base_image, volume) as image,
        pytest.raises(belljar.BelljarError, match="volume"),
    ):
        await belljar.run("true", workspace, image=image)
