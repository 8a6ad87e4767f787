"""mini-SWE-agent in Belljar's sandboxes: a scripted model, no network."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.adapters import examples

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
examples.needs("minisweagent")

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output

import belljar
from belljar.adapters import mini as adapter
from belljar.adapters.mini import BelljarEnvironment
from belljar.errors import UsageError

pytestmark = pytest.mark.engine


def scripted(*commands: str) -> Any:
    done = f"echo {adapter.SUBMIT}; cat result"
    return DeterministicModel(
        outputs=[
            make_output("", [{"command": each}], cost=0) for each in (*commands, done)
        ]
    )


@pytest.fixture(scope="module")
def environment() -> Iterator[BelljarEnvironment]:
    with BelljarEnvironment(env={"COLOUR": "green"}) as made:
        yield made


@pytest.mark.quick
def test_the_example_fixes_a_project(workspace: Path) -> None:
    (workspace / "sum.py").write_text("print(1 - 1)\n")
    os.chown(workspace / "sum.py", workspace.stat().st_uid, -1)
    model = scripted("sed -i s/-/+/ sum.py", "python3 sum.py > result", "rm -rf /")
    names = anyio.run(lambda: examples.run(adapter, model=model, project=workspace))
    assert names["outcome"] == {"exit_status": "Submitted", "submission": "2\n"}
    assert (workspace / "sum.py").read_text() == "print(1 + 1)\n"
    assert any(
        "belljar: denied: " in str(message["content"])
        for message in names["agent"].messages
    )
    assert not names["environment"].box.is_open


@pytest.mark.quick
def test_its_configuration_file_names_it() -> None:
    config = {
        "environment_class": "belljar.adapters.mini.BelljarEnvironment",
        "limits": {"memory": "256m"},
        "env": {},
    }
    made: Any = get_environment(config)
    seen = made.get_template_vars(task="one")
    assert (seen["system"], seen["task"], seen["cwd"]) == ("Linux", "one", "/workspace")
    assert made.box.limits.memory == 256 << 20
    saved = made.serialize()["info"]["config"]
    assert saved["environment_type"] == config["environment_class"]
    assert json.loads(json.dumps(saved))["environment"]["limits"] == {"memory": "256m"}
    made.cleanup()
    with pytest.raises(UsageError, match="imag"):
        get_environment({**config, "imag": "base"})


def test_an_agent_reports_as_with_any_environment(
    environment: BelljarEnvironment, tmp_path: Path
) -> None:
    model = scripted("cd /tmp && pwd", "pwd; echo $COLOUR", "false", "echo 7 > result")
    agent = DefaultAgent(
        model, environment, system_template="{{system}}", instance_template="{{task}}"
    )
    agent.config.output_path = tmp_path / "run.json"
    assert agent.run("go")["submission"] == "7\n"
    said = [str(message["content"]) for message in agent.messages]
    assert "/tmp\n" in said[3]
    assert "/workspace\ngreen\n" in said[5]
    assert "<returncode>1</returncode>" in said[7]
    assert said[0] == "Linux"


def test_output_has_both_streams_in_order(environment: BelljarEnvironment) -> None:
    done = environment.execute({"command": "echo 1; echo 2 >&2; echo 3; exit 7"})
    assert done == {"output": "1\n2\n3\n", "returncode": 7, "exception_info": ""}


def test_a_timeout_keeps_what_was_printed(environment: BelljarEnvironment) -> None:
    done = environment.execute({"command": "echo begun; sleep 600"}, timeout=1)
    assert (done["output"], done["returncode"]) == ("begun\n", -1)
    assert done["extra"]["exception_type"] == "TimeoutExpired"
    assert "1 seconds" in done["exception_info"]


def test_what_cannot_run_says_why(environment: BelljarEnvironment) -> None:
    for command, cwd, why in (
        ("rm -rf /", "", "denied"),
        ("true", "/none", "/none"),
        ("echo (", "", "denied"),
    ):
        done = environment.execute({"command": command}, cwd)
        assert done["returncode"] != 0
        assert why in done["exception_info"]


def test_only_a_first_line_of_success_submits(environment: BelljarEnvironment) -> None:
    with pytest.raises(Submitted) as submitted:
        environment.execute({"command": f"echo; echo {adapter.SUBMIT}; echo 1; echo 2"})
    assert submitted.value.messages[0]["extra"]["submission"] == "1\n2\n"
    assert (
        environment.execute({"command": f"echo {adapter.SUBMIT}; false"})["returncode"]
        == 1
    )
    assert (
        environment.execute({"command": f"echo before; echo {adapter.SUBMIT}"})[
            "returncode"
        ]
        == 0
    )


def test_a_forgotten_environment_ends_its_sandbox() -> None:
    made = BelljarEnvironment()
    box, place = made.box, made.box.options.workspace
    del made
    gc.collect()
    assert not box.is_open
    assert not os.path.exists(place)


def test_many_threads_have_an_environment_each() -> None:
    found: list[str] = []

    def work(number: int) -> None:
        with BelljarEnvironment() as made:
            made.execute({"command": f"echo {number} > mine"})
            found.append(made.execute({"command": "cat mine; ls"})["output"])

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [f"{number}\nmine\n" for number in range(6)]


def test_its_sandbox_may_be_a_services(address: str, workspace: Path) -> None:
    (workspace / "here").write_text("copied up\n")
    with BelljarEnvironment(host=address, workspace=workspace) as made:
        assert (
            made.execute({"command": "cat here; uname"})["output"]
            == "copied up\nLinux\n"
        )
        assert made.execute({"command": "rm -rf /"})["returncode"] == 126
        assert made.execute({"command": "sleep 600"}, timeout=1)["returncode"] == -1


def test_a_lost_sandbox_is_not_a_failed_command() -> None:
    made = BelljarEnvironment()
    made._loop.call(made.box.sandbox.destroy)
    with pytest.raises(belljar.SandboxLost):
        made.execute({"command": "true"})
    made.cleanup()
