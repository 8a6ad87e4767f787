"""Harbor, which runs Terminal-Bench and other task sets: an environment, named by its import path.

    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    sandbox = EnvironmentConfig(import_path="belljar.adapters.harbor:BelljarEnvironment", kwargs={"image": "base"})
    oracle = AgentConfig(name="oracle")
    config = TrialConfig(task=TaskConfig(path=task), trials_dir=trials, agent=oracle, environment=sandbox)
    trial = await Trial.create(config)
    result = await trial.run()

Tasks expect root and a file system of their own, so `root=True` and the engine `oci` are the defaults. So is
`policy="none"`: an evaluation is to see what the model does, and the container is the wall. The task's network holds:
`public` is every public host through Belljar's door, `allowlist` its hosts, `no-network` none.
"""

from __future__ import annotations

import codecs
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.environments.definition import (
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.models.task.config import NetworkMode
from harbor.models.trial.config import ResourceMode

import belljar
from belljar.adapters import boxes
from belljar.images import catalog
from belljar.images.importing import import_images
from belljar.images.store import Store
from belljar.options import PUBLIC

EVERY_HOST = ("*:*", "tcp://*:*")
OPTIONS = (PUBLIC | {"host", "workspace", *boxes.LIVE}) - {"mounts"}
"""What `kwargs` may hold for the sandbox; mounts are Harbor's."""
_WORKDIR = re.compile(r"(?mi)^\s*WORKDIR\s+(/\S*)")


class BelljarEnvironment(BaseEnvironment):
    """One sandbox. `kwargs` are options of `belljar.Session`, with `limits` as plain data, and `host`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own = {name: kwargs.pop(name) for name in list(kwargs) if name in OPTIONS}
        self._options: dict[str, Any] = {"root": True, "policy": "none", **own}
        if "host" not in own and self._options["root"]:
            self._options.setdefault("engine", "oci")
        self._box: Any = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "belljar"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv4_cidrs=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(
            cpu_limit=True, memory_limit=True, fractional_cpus=True
        )

    def _validate_definition(self) -> None:
        if "image" not in self._options:
            require_agent_environment_definition(
                self.environment_dir, docker_image=self.task_env_config.docker_image
            )

    @property
    def box(self) -> Any:
        """The open `belljar.Session`."""
        if self._box is None:
            raise RuntimeError("the environment was not started")
        return self._box

    # Life.

    async def start(self, force_build: bool) -> None:
        options = dict(self._options)
        if "image" not in options:
            options["image"] = await self._image(force_build)
        options["limits"] = {**self._task_limits(), **dict(options.get("limits") or {})}
        options.setdefault("network", self._task_network())
        options["mounts"] = self._read_only_mounts()
        self._box = await boxes.opened(**options)
        try:
            if workdir := self._workdir():
                await self.box.files.mkdir(workdir)
            made = await self.ensure_dirs(self._mount_targets(writable_only=True))
            if made is not None and made.return_code:
                raise RuntimeError(
                    f"the directories for results cannot be made: {made.stderr}"
                )
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    async def stop(self, delete: bool) -> None:
        box, self._box = self._box, None
        if box is None:
            return
        if delete or not box.options.keep:
            await boxes.closed(box)
        else:
            await box.close()

    def _task_limits(self) -> dict[str, Any]:
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        storage = self._effective_storage_mb
        limits = {
            "cpus": cpus,
            "memory": memory and f"{memory}m",
            "disk": storage and f"{storage}m",
        }
        return {name: value for name, value in limits.items() if value is not None}

    def _task_network(self) -> Any:
        policy = self.network_policy
        if policy.network_mode == NetworkMode.NO_NETWORK:
            return "none"
        hosts = (
            EVERY_HOST
            if policy.network_mode == NetworkMode.PUBLIC
            else policy.allowed_hosts
        )
        return belljar.Allow(*hosts) if hosts else "none"

    def _read_only_mounts(self) -> dict[str, str]:
        for mount in self._host_mounts:
            if mount["type"] != "bind" or not mount.get("read_only"):
                raise ValueError(
                    f"Belljar mounts directories of the host read-only: {mount['target']} is not"
                )
        return {mount["target"]: mount["source"] for mount in self._host_mounts}

    def _workdir(self) -> str | None:
        """The task's, or the last one of its Dockerfile."""
        if self.task_env_config.workdir:
            return str(self.task_env_config.workdir)
        file = self.environment_dir / "Dockerfile"
        found = (
            _WORKDIR.findall(file.read_text())
            if file.exists() and "image" not in self._options
            else []
        )
        return found[-1] if found else None

    # Its image.

    async def _image(self, force_build: bool) -> str:
        """The task's image. Docker gets it, or builds it, and the store of the engine `oci` takes it over."""
        named = self.task_env_config.docker_image
        prebuilt = should_use_prebuilt_docker_image(
            self.environment_dir, docker_image=named, force_build=force_build
        )
        name = named if prebuilt else f"harbor-{self.environment_id}"
        if self._options.get("engine") != "oci" or (
            not force_build and await to_thread.run_sync(_has, name)
        ):
            return str(name)
        if shutil.which("docker") is None:
            raise RuntimeError(
                f"no image {name!r}: import it (belljar images import), or install Docker to build it"
            )
        await _docker(
            *(
                ["pull", "--", name]
                if prebuilt
                else ["build", "-t", name, "--", str(self.environment_dir)]
            )
        )
        with tempfile.TemporaryDirectory() as directory:
            archive = str(Path(directory, "image.tar"))
            await _docker("save", "-o", archive, "--", name)
            await to_thread.run_sync(import_images, Store(), archive, name)
        return str(name)

    # Commands.

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        options: dict[str, Any] = {
            "cwd": cwd or self._workdir(),
            "timeout": timeout_sec,
            "env": self._merge_env(env),
        }
        try:
            result = await self._run(
                command, {**options, "user": self._resolve_user(user)}
            )
        except belljar.PolicyDenied as denied:
            return ExecResult(
                stdout="",
                stderr=f"{boxes.reason(denied)}\n",
                return_code=denied.exit_status,
            )
        if boxes.there(result).cause == "timeout":
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(
            stdout=result.stdout, stderr=result.stderr, return_code=result.exit_code
        )

    async def _run(self, command: str, options: dict[str, Any]) -> Any:
        tell = self._output_callback()
        if tell is None:
            return await self.box.run(command, **options)
        decoders = {
            stream: codecs.getincrementaldecoder("utf-8")("replace")
            for stream in ("stdout", "stderr")
        }
        async with self.box.stream(command, **options) as events:
            async for event in events:
                if isinstance(event, belljar.Output) and (
                    text := decoders[event.stream].decode(event.data)
                ):
                    await tell(text, event.stream)
        return events.result

    # Files.

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self.box.files.upload(source_path, target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self.box.files.upload(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await anyio.Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await self.box.files.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await anyio.Path(target_dir).mkdir(parents=True, exist_ok=True)
        await self.box.files.download(source_dir, target_dir, links=False)


def _has(name: str) -> bool:
    return name in catalog.PARENTS or Store().find(name, with_names=False) is not None


async def _docker(*arguments: str) -> None:
    done = await anyio.run_process(["docker", *arguments], check=False)
    if done.returncode:
        raise RuntimeError(
            f"docker {arguments[0]}: {done.stderr.decode(errors='replace').strip()[-2000:]}"
        )
