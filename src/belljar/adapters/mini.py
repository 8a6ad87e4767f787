"""mini-SWE-agent: `BelljarEnvironment`, in which the agent's commands run.

    from minisweagent.agents.default import DefaultAgent
    from belljar.adapters.mini import BelljarEnvironment

    with BelljarEnvironment(workspace=project, image="base", limits={"memory": "1g"}) as environment:
        agent = DefaultAgent(model, environment, system_template="You fix bugs.", instance_template="{{task}}")
        outcome = agent.run("Fix the failing test.")

On the command line, `mini --environment-class belljar.adapters.mini.BelljarEnvironment -c mini.yaml -c
environment.workspace=.`; options of a session stand below `environment` in a configuration. What the policy denies is a
command that failed with exit status 126; `exception_info` says why.
"""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import Any, Self

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel, ConfigDict, Field

import belljar
from belljar.adapters import boxes
from belljar.errors import CommandError, UsageError
from belljar.host import default
from belljar.layout import WORKSPACE
from belljar.sync.loop import Loop

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
SYSTEM = {
    "system": "-s",
    "node": "-n",
    "release": "-r",
    "version": "-v",
    "machine": "-m",
}
"""What mini-SWE-agent's prompts say of the system, and the options of `uname` for it."""


class BelljarEnvironmentConfig(BaseModel):
    """Besides these, what `belljar.Session` takes."""

    model_config = ConfigDict(extra="allow")
    cwd: str = WORKSPACE
    env: dict[str, str] = {}
    timeout: int = 30
    workspace: str | None = None
    """A directory of this machine. None: a new, empty one, which ends with the sandbox."""
    host: Any = Field(default=None, exclude=True)

    def __init__(self, **given: Any) -> None:
        if given.get("workspace") is not None:
            given["workspace"] = str(given["workspace"])
        super().__init__(**given)
        boxes.options_of(self.model_extra or {})


class BelljarEnvironment:
    def __init__(
        self,
        *,
        config_class: type[BelljarEnvironmentConfig] = BelljarEnvironmentConfig,
        **options: Any,
    ):
        """Starts the sandbox."""
        self.config = config_class(**options)
        given = {
            **(self.config.model_extra or {}),
            "host": self.config.host,
            "env": self.config.env,
        }
        self._loop = Loop(default())
        self.box, home = self._loop.call(
            boxes.entered, boxes.opened, self.config.workspace, **given
        )
        self._end = weakref.finalize(self, boxes.close_from_anywhere, self.box, home)

    @cached_property
    def _system(self) -> dict[str, str]:
        return {
            name: self._loop.call(self.box.run, ["uname", option]).stdout.strip()
            for name, option in SYSTEM.items()
        }

    def cleanup(self) -> None:
        """End the sandbox. An environment that is forgotten does so too."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, Any]:
        seconds = timeout or self.config.timeout
        try:
            result = self._loop.call(
                self.box.run,
                action.get("command", ""),
                cwd=cwd or self.config.cwd,
                timeout=seconds,
                combined=True,
            )
        except (belljar.PolicyDenied, CommandError, UsageError) as error:
            return _outcome(
                "", error.exit_status, type(error).__name__, boxes.reason(error)
            )
        boxes.there(result)
        if result.cause == "timeout":
            return _outcome(
                result.stdout,
                -1,
                "TimeoutExpired",
                f"The command was killed after {seconds} seconds.",
            )
        _check_submitted(result)
        return _outcome(result.stdout, result.exit_code)

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        return recursive_merge(self.config.model_dump(), self._system, more)

    def serialize(self) -> dict[str, Any]:
        own = {
            "environment": self.config.model_dump(mode="json"),
            "environment_type": f"{type(self).__module__}.{type(self).__name__}",
        }
        return {"info": {"config": own}}


def _outcome(output: str, status: int, kind: str = "", why: str = "") -> dict[str, Any]:
    plain = {"output": output, "returncode": status, "exception_info": why}
    return (
        {**plain, "extra": {"exception_type": kind, "exception": why}}
        if kind
        else plain
    )


def _check_submitted(result: belljar.Result) -> None:
    first, _, submission = result.stdout.lstrip().partition("\n")
    if result.ok and first.strip() == SUBMIT:
        extra = {"exit_status": "Submitted", "submission": submission}
        raise Submitted({"role": "exit", "content": submission, "extra": extra})
