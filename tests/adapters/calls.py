"""The time of a tool call through an adapter, and through the framework's own back ends on this machine and in Docker.

It runs in a framework's environment, for `make bench`, and prints seconds as JSON: {"ours": […], "local": […], …}. The
contenders take turns.

    python -m tests.adapters.calls mini IMAGE ROUNDS
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from belljar.errors import EngineUnavailable

Call = Callable[[], Awaitable[Any]]
Contenders = dict[str, Call]
SAMPLES = 20
COMPOSE = """\
services:
  default:
    image: {image}
    x-local: true
    command: tail -f /dev/null
    init: true
    network_mode: none
    stop_grace_period: 1s
"""
"""For Inspect's docker provider: what it writes itself, with our image."""


def has_compose() -> bool:
    """Inspect and Harbor use Docker through it. tests/runtimes.py says where it comes from."""
    if shutil.which("docker") is None:
        return False
    asked = ["docker", "compose", "version"]
    return subprocess.run(asked, capture_output=True).returncode == 0


@asynccontextmanager
async def inspect_providers(image: str) -> AsyncIterator[dict[str, tuple[Any, Any]]]:
    """Ours and its docker provider, each with its configuration. The provider's check of the engine's version
    (24.0.6) is left out: it is about read-only mounts, and not one is used here."""
    from inspect_ai.util._sandbox.docker.cleanup import (
        project_cleanup_shutdown,
        project_cleanup_startup,
    )
    from inspect_ai.util._sandbox.docker.docker import DockerSandboxEnvironment

    from belljar.adapters.inspect import BelljarSandboxEnvironment

    found: dict[str, tuple[Any, Any]] = {"ours": (BelljarSandboxEnvironment, None)}
    with tempfile.TemporaryDirectory() as place:
        if await to_thread.run_sync(has_compose):
            compose = os.path.join(place, "compose.yaml")
            with open(compose, "w") as file:
                file.write(COMPOSE.format(image=image))
            project_cleanup_startup()
            found["docker"] = DockerSandboxEnvironment, compose
        yield found
        if "docker" in found:
            await project_cleanup_shutdown(cleanup=True)


@asynccontextmanager
async def inspect(image: str) -> AsyncIterator[Contenders]:
    from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

    async with inspect_providers(image) as kinds:
        kinds["local"] = LocalSandboxEnvironment, None
        made = {
            name: await kind.sample_init("bench", config, {})
            for name, (kind, config) in kinds.items()
        }
        try:
            yield {
                name: partial(found["default"].exec, ["echo", "hi"])
                for name, found in made.items()
            }
        finally:
            for name, (kind, config) in kinds.items():
                await kind.sample_cleanup("bench", config, made[name], False)


@asynccontextmanager
async def pydantic_ai(image: str) -> AsyncIterator[Contenders]:
    from pydantic_ai.workspaces import LocalWorkspaceBackend

    from belljar.adapters.pydantic_ai import BelljarWorkspaceBackend, destroy

    ours = BelljarWorkspaceBackend()
    with tempfile.TemporaryDirectory() as place:
        contenders = {"ours": ours, "local": LocalWorkspaceBackend(place)}
        yield {
            name: partial(backend.run, "echo hi", shell=True)
            for name, backend in contenders.items()
        }
    await destroy(ours)


@asynccontextmanager
async def deepagents(image: str) -> AsyncIterator[Contenders]:
    from deepagents.backends.local_shell import LocalShellBackend

    from belljar.adapters.deepagents import BelljarSandbox

    ours = await to_thread.run_sync(BelljarSandbox)
    with tempfile.TemporaryDirectory() as place:
        contenders = {
            "ours": ours,
            "local": LocalShellBackend(root_dir=place, virtual_mode=False),
        }
        yield {
            name: partial(backend.aexecute, "echo hi")
            for name, backend in contenders.items()
        }
    await to_thread.run_sync(ours.close)


@asynccontextmanager
async def mini(image: str) -> AsyncIterator[Contenders]:
    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    from minisweagent.environments.docker import DockerEnvironment
    from minisweagent.environments.local import LocalEnvironment

    from belljar.adapters.mini import BelljarEnvironment

    contenders: dict[str, Any] = {
        "ours": await to_thread.run_sync(BelljarEnvironment),
        "local": LocalEnvironment(),
    }
    if shutil.which("docker"):
        contenders["docker"] = await to_thread.run_sync(
            partial(DockerEnvironment, image=image)
        )
    try:
        calls = {
            name: partial(each.execute, {"command": "echo hi"})
            for name, each in contenders.items()
        }
        yield {name: partial(to_thread.run_sync, call) for name, call in calls.items()}
    finally:
        await to_thread.run_sync(contenders["ours"].cleanup)


@asynccontextmanager
async def acp(image: str) -> AsyncIterator[Contenders]:
    """It has no back ends of its own: beside it a plain process."""
    from belljar.adapters.acp import BelljarClient

    async with BelljarClient.opened() as client:

        async def terminal() -> None:
            made = await client.create_terminal("one", "echo", ["hi"])
            await client.wait_for_terminal_exit("one", made.terminal_id)
            await client.terminal_output("one", made.terminal_id)
            await client.release_terminal("one", made.terminal_id)

        run = partial(subprocess.run, ["echo", "hi"], capture_output=True, check=True)
        yield {"ours": terminal, "local": partial(to_thread.run_sync, run)}


@asynccontextmanager
async def openai_agents(image: str) -> AsyncIterator[Contenders]:
    import docker
    from agents.sandbox.sandboxes.docker import (
        DockerSandboxClient,
        DockerSandboxClientOptions,
    )
    from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient

    from belljar.adapters.openai_agents import BelljarSandboxClient

    clients: dict[str, Any] = {
        "ours": BelljarSandboxClient(),
        "local": UnixLocalSandboxClient(),
    }
    options: dict[str, Any] = {"ours": None, "local": None}
    if shutil.which("docker"):
        clients["docker"] = DockerSandboxClient(docker.from_env())
        options["docker"] = DockerSandboxClientOptions(image=image)
    async with AsyncExitStack() as stack:
        contenders = {}
        for name, client in clients.items():
            session = await client.create(options=options[name])
            stack.push_async_callback(client.delete, session)
            contenders[name] = await stack.enter_async_context(session)
        yield {
            name: partial(session.exec, "echo", "hi", shell=False)
            for name, session in contenders.items()
        }


@asynccontextmanager
async def swerex(image: str) -> AsyncIterator[Contenders]:
    """Its back end in Docker needs an image with its server, which has to be fetched."""
    from swerex.deployment.local import LocalDeployment
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

    from belljar.adapters.swerex import BelljarDeployment

    deployments: dict[str, Any] = {
        "ours": BelljarDeployment(),
        "local": LocalDeployment(),
    }
    for deployment in deployments.values():
        await deployment.start()
        await deployment.runtime.create_session(
            CreateBashSessionRequest(startup_timeout=10)
        )
    try:
        action = BashAction(command="echo hi", timeout=60)
        yield {
            name: partial(each.runtime.run_in_session, action)
            for name, each in deployments.items()
        }
    finally:
        for deployment in deployments.values():
            await deployment.stop()


@asynccontextmanager
async def harbor(image: str) -> AsyncIterator[Contenders]:
    """It has none without a sandbox: beside it a plain process."""
    from pathlib import Path

    from harbor.environments.docker.docker import DockerEnvironment
    from harbor.models.task.config import EnvironmentConfig
    from harbor.models.trial.paths import TrialPaths

    from belljar.adapters.harbor import BelljarEnvironment

    with tempfile.TemporaryDirectory() as place:
        paths = TrialPaths(Path(place, "trial"))
        paths.mkdir()
        given: dict[str, Any] = {
            "environment_dir": Path(place),
            "environment_name": "bench",
            "session_id": "bench__env",
            "trial_paths": paths,
        }
        config = EnvironmentConfig()
        environments: dict[str, Any] = {
            "ours": BelljarEnvironment(
                **given, task_env_config=config, image="base", network="none"
            )
        }
        if await to_thread.run_sync(has_compose):
            prebuilt = EnvironmentConfig(docker_image=image)
            environments["docker"] = DockerEnvironment(
                **given,
                task_env_config=prebuilt,
            )
        for environment in environments.values():
            await environment.start(force_build=False)
        run = partial(
            subprocess.run, ["bash", "-c", "echo hi"], capture_output=True, check=True
        )
        calls = {
            name: partial(each.exec, "echo hi") for name, each in environments.items()
        }
        yield {**calls, "local": partial(to_thread.run_sync, run)}
        for environment in environments.values():
            await environment.stop(delete=True)


@asynccontextmanager
async def openhands(image: str) -> AsyncIterator[Contenders]:
    """A call of its terminal. Its back end in Docker needs an image with its server, which has to be fetched."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")
    from openhands.tools.terminal.definition import TerminalAction
    from openhands.tools.terminal.impl import TerminalExecutor

    from belljar.adapters.openhands import BelljarTerminalExecutor, BelljarWorkspace

    workspace = BelljarWorkspace()
    with tempfile.TemporaryDirectory() as place:
        executors = {
            "ours": await to_thread.run_sync(BelljarTerminalExecutor, workspace),
            "local": await to_thread.run_sync(
                partial(TerminalExecutor, place, terminal_type="subprocess")
            ),
        }
        calls = {
            name: partial(each, TerminalAction(command="echo hi"))
            for name, each in executors.items()
        }
        yield {name: partial(to_thread.run_sync, call) for name, call in calls.items()}
        for executor in executors.values():
            await to_thread.run_sync(executor.close)
    await to_thread.run_sync(workspace.close)


async def samples(image: str) -> dict[str, float]:
    """Seconds for each of many samples of Inspect at once, set up and torn down, with as many side by side as Inspect
    lets the provider have by default. Ours also on the engine oci, where that works."""
    from belljar.adapters.inspect import BelljarConfig, BelljarSandboxEnvironment

    async with inspect_providers(image) as kinds:
        kinds["ours on oci"] = BelljarSandboxEnvironment, BelljarConfig(engine="oci")
        taken = {}
        for name, (kind, config) in kinds.items():
            with suppress(EngineUnavailable):
                taken[name] = await _samples(kind, config)
        return taken


async def _samples(kind: Any, config: Any) -> float:
    places = anyio.CapacityLimiter(kind.default_concurrency() or SAMPLES)

    async def one() -> None:
        async with places:
            made = await kind.sample_init("bench", config, {})
            await kind.sample_cleanup("bench", config, made, False)

    await one()
    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(SAMPLES):
            tasks.start_soon(one)
    return (time.perf_counter() - begun) / SAMPLES


ADAPTERS = (
    inspect,
    pydantic_ai,
    deepagents,
    mini,
    acp,
    openai_agents,
    swerex,
    harbor,
    openhands,
)
FRAMEWORKS = {each.__name__: each for each in ADAPTERS}


async def main(name: str, image: str, rounds: int) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        calls = await stack.enter_async_context(FRAMEWORKS[name](image))
        times: dict[str, list[float]] = {each: [] for each in calls}
        for number in range(-3, rounds):  # the first ones are not counted
            for each, call in calls.items():
                begun = time.perf_counter()
                await call()
                if number >= 0:
                    times[each].append(time.perf_counter() - begun)
    return times | ({"samples": await samples(image)} if name == "inspect" else {})


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))))
