"""Harbor on Belljar: its environment contract, and a whole trial with its oracle agent: no model, no network."""

from __future__ import annotations

import logging
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters import examples
from tests.adapters.losing import lost_while

examples.needs("harbor")

from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.config import EnvironmentConfig as TrialEnvironment
from harbor.models.trial.paths import TrialPaths

import belljar
from belljar.adapters import harbor
from belljar.adapters.harbor import BelljarEnvironment
from belljar.images import catalog
from belljar.images.store import Store

pytestmark = [pytest.mark.oci]

PATH = "belljar.adapters.harbor:BelljarEnvironment"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., BelljarEnvironment]:
    def environment(
        config: EnvironmentConfig | None = None, **kwargs: Any
    ) -> BelljarEnvironment:
        directory = tmp_path / "environment"
        directory.mkdir(exist_ok=True)
        paths = TrialPaths(tmp_path / "trial")
        paths.mkdir()
        made = EnvironmentFactory.create_environment_from_config(
            config=TrialEnvironment(
                import_path=PATH,
                kwargs={"network": "none", **kwargs.pop("options", {})},
            ),
            environment_dir=directory,
            environment_name="task",
            session_id=f"task__{uuid.uuid4().hex[:7]}__env",
            trial_paths=paths,
            task_env_config=config or EnvironmentConfig(docker_image="base"),
            logger=logging.getLogger("test"),
            **kwargs,
        )
        assert isinstance(made, BelljarEnvironment)
        return made

    return environment


@pytest.fixture
async def environment(
    make: Callable[..., BelljarEnvironment],
) -> AsyncIterator[BelljarEnvironment]:
    made = make()
    await made.start(force_build=False)
    yield made
    await made.stop(delete=True)


def write_task(place: Path, *, solve: str, check: str, environment: str) -> Path:
    files = {
        "task.toml": f'version = "1.0"\n[environment]\n{environment}\n',
        "instruction.md": "Write 42 into answer.txt.\n",
        "solution/solve.sh": f"#!/bin/bash\n{solve}\n",
        "tests/test.sh": f"#!/bin/bash\n{check}\n",
        "environment/seed.txt": "seed\n",
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


CHECK = "if grep -qx 42 /work/answer.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"


@pytest.mark.quick
async def test_the_example_runs_a_trial_from_its_task_to_its_reward(
    tmp_path: Path,
) -> None:
    task = write_task(
        tmp_path / "task",
        solve="test -f seed.txt && echo 42 > answer.txt && id -un",
        check=CHECK,
        environment='docker_image = "base"\nworkdir = "/work"\nnetwork_mode = "no-network"\ncpus = 1\nmemory_mb = 512',
    )
    names = await examples.run(harbor, task=task, trials=tmp_path / "trials")
    result = names["result"]
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": 1.0}
    (log,) = (tmp_path / "trials").rglob("oracle.txt")
    assert "root" in log.read_text()


async def test_a_wrong_answer_has_no_reward(tmp_path: Path) -> None:
    settings = 'docker_image = "base"\nworkdir = "/work"\nnetwork_mode = "no-network"'
    task = write_task(
        tmp_path / "task",
        solve="echo 41 > answer.txt",
        check=CHECK,
        environment=settings,
    )
    names = await examples.run(harbor, task=task, trials=tmp_path / "trials")
    assert names["result"].verifier_result.rewards == {"reward": 0.0}


@pytest.mark.quick
async def test_commands_have_root_a_directory_variables_and_streams(
    environment: BelljarEnvironment,
) -> None:
    seen = await environment.exec(
        'id -un; echo "$PWD $A"; echo err >&2; exit 3', cwd="/tmp", env={"A": "b"}
    )
    assert (seen.stdout, seen.stderr, seen.return_code) == (
        "root\n/tmp b\n",
        "err\n",
        3,
    )
    assert (await environment.exec("id -un", user="nobody")).stdout == "nobody\n"
    with environment.with_default_user("nobody"):
        assert (await environment.exec("id -un")).stdout == "nobody\n"
    with pytest.raises(RuntimeError, match="timed out"):
        await environment.exec("sleep 600", timeout_sec=1)


async def test_the_directories_for_results_are_there_and_open_to_all(
    make: Callable[..., BelljarEnvironment],
) -> None:
    results = [
        {"type": "bind", "source": "/nowhere", "target": f"/logs/{name}"}
        for name in ("agent", "verifier")
    ]
    environment = make(auto_mounts=results)
    await environment.start(force_build=False)
    assert (
        await environment.exec("touch /logs/agent/x /logs/verifier/x", user="nobody")
    ).return_code == 0
    reset = await environment.reset_dirs(
        remove_dirs=["/logs/verifier"], create_dirs=["/logs/verifier", "/tests"]
    )
    assert reset.return_code == 0
    assert (await environment.exec("ls /logs/verifier")).stdout == ""
    await environment.stop(delete=True)


async def test_output_is_passed_on_while_a_command_runs(
    environment: BelljarEnvironment,
) -> None:
    told: list[tuple[str, str]] = []

    async def tell(text: str, stream: str) -> None:
        told.append((stream, text))

    with environment.scoped_output_callback(tell):
        seen = await environment.exec("printf é; echo err >&2")
    assert {
        stream: "".join(t for s, t in told if s == stream) for stream, _ in told
    } == {
        "stdout": "é",
        "stderr": "err\n",
    }
    assert seen.stdout == "é"


@pytest.mark.quick
async def test_files_and_directories_go_both_ways(
    environment: BelljarEnvironment, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "deep/run.sh").chmod(0o755)
    await environment.upload_dir(source, "/app/src")
    assert (await environment.exec("/app/src/deep/run.sh")).stdout == "ran\n"
    await environment.exec(
        "mkfifo /app/src/pipe; echo out > /app/src/out.txt; echo skip > /app/src/skip.log"
    )
    await environment.download_dir_with_exclusions(
        source_dir="/app/src", target_dir=tmp_path / "some", exclude=["*.log", "pipe"]
    )
    assert {path.name for path in (tmp_path / "some").iterdir()} == {"deep", "out.txt"}
    await environment.upload_file(source / "deep/run.sh", "/opt/new/run.sh")
    await environment.download_file("/opt/new/run.sh", tmp_path / "back/run.sh")
    assert (tmp_path / "back/run.sh").read_text() == "#!/bin/sh\necho ran\n"
    await environment.download_dir("/app/src/deep", tmp_path / "deep")
    assert (tmp_path / "deep/run.sh").exists()
    assert await environment.is_dir("/app/src")
    assert not await environment.is_file("/app/src")


async def test_the_limits_of_the_task_hold(
    make: Callable[..., BelljarEnvironment],
) -> None:
    config = EnvironmentConfig(
        docker_image="base", cpus=0.5, memory_mb=300, storage_mb=200, workdir="/app"
    )
    made = make(config, options={"limits": {"pids": 100}})
    await made.start(force_build=False)
    limits = made.box.limits
    assert (limits.cpus, limits.memory, limits.disk, limits.pids) == (
        0.5,
        300 << 20,
        200 << 20,
        100,
    )
    assert (await made.exec("pwd")).stdout == "/app\n"
    await made.stop(delete=True)


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (NetworkPolicy(network_mode=NetworkMode.NO_NETWORK), None),
        (
            NetworkPolicy(
                network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["pypi.example"]
            ),
            ["pypi.example"],
        ),
        (NetworkPolicy(), list(harbor.EVERY_HOST)),
    ],
)
def test_the_network_is_the_tasks(
    make: Callable[..., BelljarEnvironment],
    policy: NetworkPolicy,
    allowed: list[str] | None,
) -> None:
    network = make(network_policy=policy)._task_network()
    if allowed is None:
        assert network == "none"
    else:
        assert network == belljar.Allow(*allowed)


async def test_only_read_only_mounts_are_taken(
    make: Callable[..., BelljarEnvironment], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/file").write_text("here\n")
    mount = {
        "type": "bind",
        "source": str(tmp_path / "data"),
        "target": "/data",
        "read_only": True,
    }
    made = make(mounts=[mount])
    await made.start(force_build=False)
    assert (await made.exec("cat /data/file; touch /data/new")).stdout == "here\n"
    assert not (tmp_path / "data/new").exists()
    await made.stop(delete=True)
    del mount["read_only"]
    with pytest.raises(ValueError, match="read-only"):
        await make(mounts=[mount]).start(force_build=False)


@pytest.mark.docker
async def test_a_dockerfile_is_built_and_its_directory_used(
    make: Callable[..., BelljarEnvironment], tmp_path: Path
) -> None:
    (tmp_path / "environment").mkdir(exist_ok=True)
    base = catalog.reference("base")
    (tmp_path / "environment/Dockerfile").write_text(
        f"FROM {base}\nUSER root\nWORKDIR /srv/app\nRUN echo built > made\n"
    )
    made = make(EnvironmentConfig())
    await made.start(force_build=False)
    assert (await made.exec("pwd; cat made")).stdout == "/srv/app\nbuilt\n"
    image = made.box.image
    await made.stop(delete=True)
    assert image == f"harbor-{made.environment_id}"
    Store().remove(image)
    subprocess.run(["docker", "rmi", image], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.docker
async def test_the_name_of_an_image_is_never_an_option_of_docker(
    make: Callable[..., BelljarEnvironment],
) -> None:
    with pytest.raises(RuntimeError, match="invalid reference format"):
        await make(EnvironmentConfig(docker_image="--help")).start(force_build=False)


def test_a_task_without_an_image_is_refused(
    make: Callable[..., BelljarEnvironment],
) -> None:
    with pytest.raises(FileNotFoundError, match="docker_image"):
        make(EnvironmentConfig())


async def test_with_a_policy_a_denied_command_fails_and_says_why(
    make: Callable[..., BelljarEnvironment], tmp_path: Path
) -> None:
    (tmp_path / "rm.txt").write_text("rm -rf /\n")
    made = make(options={"policy": "default"})
    await made.start(force_build=False)
    seen = await made.exec((tmp_path / "rm.txt").read_text().strip())
    assert seen.return_code == 126
    assert "denied" in (seen.stderr or "")
    await made.stop(delete=True)
    await made.stop(delete=True)


async def test_a_lost_sandbox_is_an_error(
    make: Callable[..., BelljarEnvironment],
) -> None:
    made = make()
    await made.start(force_build=False)
    with pytest.raises(belljar.SandboxLost):
        await lost_while(made.box, made.exec("sleep 600"))
    await made.stop(delete=True)


async def test_links_of_a_sandbox_do_not_come_to_the_host(
    environment: BelljarEnvironment, tmp_path: Path
) -> None:
    """Harbor reads what it has downloaded, and downloads there again."""
    await environment.exec(
        "mkdir -p /logs/out/d; ln -s /etc/passwd /logs/out/reward.txt;"
        " ln -s / /logs/out/d/root; echo 1 > /logs/out/d/file"
    )
    await environment.download_dir("/logs/out", tmp_path / "out")
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("out/*"))
    assert found == ["out/d"]
    assert [path.name for path in (tmp_path / "out/d").iterdir()] == ["file"]
