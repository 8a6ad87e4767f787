"""Every wrong name or value is one clear UsageError, before anything is made."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import belljar
from belljar import Limits, Policy, Pool, Session, ToolRegistry
from belljar.errors import UsageError
from belljar.session.background_shell import Shell


class NoHost(belljar.Host):
    """A host that fails the test if it is used."""

    def connect(self) -> Any:
        raise AssertionError("something was about to be made")


SESSIONS: list[dict[str, Any]] = [
    {"network": "off"}, {"network": "None"}, {"network": None}, {"network": False}, {"network": "host"},
    {"network": []}, {"image": ""}, {"image": None}, {"image": 5}, {"limits": {"memory": "1g"}}, {"limits": "1g"},
    {"policy": "nosuch"}, {"policy": None}, {"policy": 5}, {"policy": ""}, {"approve": "yes"}, {"env": "A=1"},
    {"env": {"A": 1}}, {"env": {"A=B": "x"}}, {"env": {"": "x"}}, {"env": {"A": "x\0"}}, {"lease": 0}, {"lease": -1},
    {"lease": "5"}, {"lease": None}, {"lease": float("nan")}, {"lease": float("inf")}, {"lease": True},
    {"engine": "dokcer"}, {"netwrok": "none"}, {"timeout": 5}, {"workspace": None}, {"workspace": 5},
]  # fmt: skip
OWN: list[dict[str, Any]] = [
    {"keep": "yes"},
    {"id": "../../etc"},
    {"id": ""},
    {"id": 5},
    {"id": "bj-XYZ"},
]
COMMANDS: list[dict[str, Any]] = [
    {"timeot": 1}, {"environment": {}}, {"verdict": None}, {"timeout": 0}, {"timeout": -1}, {"timeout": "5"},
    {"timeout": True}, {"timeout": float("inf")}, {"timeout": 1e30}, {"env": ["A=1"]}, {"env": {1: "x"}}, {"cwd": 5},
    {"combined": 1}, {"pty": "yes"}, {"clean_env": None}, {"grace": -1}, {"grace": None}, {"grace": "2"},
]  # fmt: skip
OF_OUTPUT: list[dict[str, Any]] = [
    {"stdin": 5}, {"stdin": ["x"]}, {"output_limit": 0}, {"output_limit": "1m"}, {"on_output": "print"},
]  # fmt: skip


def name(options: dict[str, Any]) -> str:
    return str(options)


@pytest.mark.parametrize("options", SESSIONS + OWN, ids=name)
def test_a_wrong_option_of_a_session_is_a_usage_error(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Session(**{"host": None if "engine" in options else NoHost(), **options})


@pytest.mark.parametrize("options", SESSIONS, ids=name)
def test_a_wrong_session_option_of_a_pool_is_a_usage_error(
    options: dict[str, Any],
) -> None:
    with pytest.raises(UsageError):
        Pool(**{"host": None if "engine" in options else NoHost(), **options})


@pytest.mark.parametrize(
    "options",
    [
        {"size": -1},
        {"size": "4"},
        {"size": True},
        {"memory": "much"},
        {"idle": -1},
        {"idle": "x"},
    ],
    ids=name,
)
def test_a_wrong_option_of_the_pool_itself_is_a_usage_error(
    options: dict[str, Any],
) -> None:
    with pytest.raises(UsageError):
        Pool(host=NoHost(), **options)


@pytest.mark.parametrize(
    "options",
    [each for each in SESSIONS if "timeout" not in each] + COMMANDS + OF_OUTPUT,
    ids=name,
)
async def test_a_wrong_option_of_run_is_a_usage_error(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await belljar.run(
            "true", **{"host": None if "engine" in options else NoHost(), **options}
        )


@pytest.mark.parametrize(
    "command",
    [None, 5, b"true", [], [""], [b"true"], ["true", 1], {"a": "b"}],
    ids=repr,
)
async def test_an_invalid_command_is_a_usage_error(command: Any) -> None:
    with pytest.raises(UsageError):
        await belljar.run(command, host=NoHost())


@pytest.mark.parametrize(
    "options",
    [{"nosuch": 1}, {"network": "full"}, {"policy": "nosuch"}, {"env": 5}],
    ids=name,
)
async def test_a_wrong_option_of_attach_is_a_usage_error(
    options: dict[str, Any],
) -> None:
    with pytest.raises(UsageError):
        await Session.attach("bj-000000000000", **{"host": NoHost(), **options})
    with pytest.raises(UsageError, match="session id"):
        await Session.attach("../etc", host=NoHost())


@pytest.mark.parametrize(
    "call",
    [
        lambda: Limits(memory="much"), lambda: Limits(memory=-1), lambda: Limits(memroy="1g"), lambda: Limits(cpus="x"),  # type: ignore[call-arg,arg-type]
        lambda: Limits(pids="many"), lambda: Policy.load("nosuch"), lambda: Policy.load(None), lambda: Policy.load(5),  # type: ignore[arg-type]
        lambda: ToolRegistry(5), lambda: ToolRegistry(dry_run="yes"), lambda: ToolRegistry(families=("nosuch",)),  # type: ignore[arg-type]
        lambda: ToolRegistry(config={"nosuch": {}}), lambda: ToolRegistry(config={"Bash": {"x": 1}}),
        lambda: ToolRegistry(families="bash"), lambda: ToolRegistry().schemas("xml"), lambda: ToolRegistry().get("No"),  # type: ignore[arg-type]
        lambda: belljar.Host(engine="nosuch"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_wrong_arguments_of_other_public_calls_are_usage_errors(
    call: Callable[[], object],
) -> None:
    with pytest.raises(UsageError):
        call()


async def test_an_argument_that_is_no_text_is_named() -> None:
    wrong: Any = ["head", "-n", 3]
    with pytest.raises(UsageError, match=r"write str\(3\)"):
        await belljar.run(wrong, host=NoHost())


async def test_every_way_to_run_a_command_refuses_wrong_options(
    workspace: Path,
) -> None:
    async with Session(workspace) as box:
        for options in COMMANDS + OF_OUTPUT:
            for way in (box.run, box.admit, box.start):
                with pytest.raises(UsageError):
                    await way("sleep 60", **options)
            with pytest.raises(UsageError):
                async with box.stream("sleep 60", **options):
                    pass
            with pytest.raises(UsageError):
                await box.yielding("sleep 60", yield_after=1, **options)
        for value in (-1, "1", None, True, float("nan")):
            with pytest.raises(UsageError):
                await box.yielding("sleep 60", yield_after=value)  # type: ignore[arg-type]
        for odd in ({"timeout": 0}, {"timeout": "5"}, {"grace": -1}, {"on_output": 1}):
            with pytest.raises(UsageError):
                await box.persistent.run("sleep 60", **odd)  # type: ignore[arg-type]
        for ring in (0, -1, "1m", 1 << 40):
            with pytest.raises(UsageError):
                await box.start("sleep 60", ring=ring)  # type: ignore[arg-type]
        shell = await box.start("cat")
        await _refused_by(shell)
        await shell.kill()
        assert (await box.run("pgrep -c sleep")).stdout == "0\n"


async def _refused_by(shell: Shell) -> None:
    for options in (
        {"filter": 5},
        {"offset": -1},
        {"offset": "0"},
        {"offset": (1, 2, 3)},
        {"limit": 0},
        {"wait": -1},
    ):
        with pytest.raises(UsageError):
            await shell.read(**options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Invalid filter"):
        await shell.read("(")
    with pytest.raises(UsageError):
        await shell.write(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        await shell.kill(grace=-1)
    with pytest.raises(UsageError):
        await shell.wait(timeout=0)
    with pytest.raises(UsageError):
        shell.signal(0)
    with pytest.raises(UsageError, match="still runs"):
        await shell.result()


def test_a_misspelt_option_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'network'"):
        Session(netwrok="none")  # type: ignore[call-arg]


async def test_only_true_counts_as_approval(workspace: Path) -> None:
    for answer in ("no", 1, None, object()):
        async with Session(workspace, approve=lambda _, answer=answer: answer) as box:  # type: ignore[misc]
            with pytest.raises(belljar.PolicyDenied):
                await box.run("sudo true")


async def test_a_session_that_is_not_open_says_how_to_open_it(workspace: Path) -> None:
    box = Session(workspace)
    with pytest.raises(UsageError, match="async with"):
        await box.run("true")
    with pytest.raises(UsageError, match=r"belljar\.sync"), box:  # type: ignore[attr-defined]
        pass


def test_a_session_of_another_event_loop_says_so(workspace: Path) -> None:
    async def use(box: Session) -> None:
        for way in (box.run, box.persistent.run, box.start):
            with pytest.raises(UsageError, match="another event loop"):
                await way("true")

    async def main() -> None:
        async with Session(workspace) as box:
            await asyncio.to_thread(asyncio.run, use(box))
            assert (await box.run("echo here")).stdout == "here\n"

    asyncio.run(main())
