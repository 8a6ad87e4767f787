"""A user's program passes mypy --strict, with the asynchronous and the blocking API. So do the README's examples."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

ASYNC = """
import anyio
import belljar
from belljar import Ended, Output, Result, Shell, Started

def approve(verdict: belljar.Verdict) -> bool:
    return verdict.risk != "critical"

async def main() -> None:
    limits = belljar.Limits(memory="1g", cpus=1.5, pids=128)
    memory: int = limits.memory
    async with belljar.Session(".", limits=limits, network="none", approve=approve, policy="strict") as box:
        result: Result = await box.run(["make", "-j2"], timeout=300, env={"CI": "1"}, cwd="src")
        text: str = result.stdout
        hints: tuple[str, ...] = result.hints
        async with box.stream("npm test", on_output=lambda output: print(output.data)) as events:
            async for event in events:
                if isinstance(event, Output):
                    data: bytes = event.data
                elif isinstance(event, Ended):
                    result = event.result
                else:
                    pid: int = event.pid
        shell: Shell = await box.start("npm run dev")
        chunk = await shell.read(filter="error", offset=0)
        line: str = chunk.stdout
        turn = await box.persistent.run("cd src")
        where: str = turn.cwd
        came = await box.yielding("make", yield_after=5.0)
        if isinstance(came, Shell):
            await came.kill()
        tools = belljar.ToolRegistry(box)
        answer = await tools.call("Bash", {"command": "ls"})
        said: str = answer.text
    async with belljar.Pool(".", size=4, image="python") as pool:
        await pool.ready()
        async with pool.session(policy="ci") as warm:
            result = await warm.run("true")
    kept = await belljar.Session.attach("bj-000000000000", policy="ci")
    await kept.stop()
    result = await belljar.run("true", workspace=".", timeout=5, image="base", engine="docker")
    decision: str = belljar.Policy.load("default").judge("ls").decision

anyio.run(main)
"""
SYNC = """
from belljar import Ended, Limits, Output, Result, sync

with sync.Session(".", limits=Limits(memory="1g")) as box:
    result: Result = box.run("make", timeout=5)
    with box.stream("npm test") as events:
        for event in events:
            if isinstance(event, Output):
                data: bytes = event.data
            elif isinstance(event, Ended):
                result = event.result
    shell: sync.Shell = box.start("npm run dev")
    text: str = shell.read(wait=1.0).stdout
    shell.kill()
    where: str = box.persistent.run("cd src").cwd
    tools = sync.ToolRegistry(box)
    said: str = tools.call("Bash", {"command": "ls"}).text
with sync.Pool(".", size=2) as pool:
    pool.ready()
    with pool.session() as warm:
        result = warm.run(["true"])
with sync.attach("bj-000000000000") as kept:
    code: int = kept.run("true").exit_code
result = sync.run("true", ".", timeout=5)
"""
WRONG = {
    "import belljar\nbelljar.Session(netwrok='none')": "netwrok",
    "import belljar\nbelljar.Session(network='off')": "network",
    "import belljar\nbelljar.Limits(memroy='1g')": "memroy",
    "from belljar import sync\nsync.run('true', timeout='5')": "timeout",
    "from belljar import sync\nsync.Session().run('true', timeot=5)": "timeot",
    "from belljar import sync\nx: int = sync.run('true').stdout": "int",
}


def readme() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


PROGRAMS = [ASYNC, SYNC, *readme()]


def strictly(files: Mapping[Path, str]) -> subprocess.CompletedProcess[str]:
    """Run mypy --strict on a user's programs, all in one directory."""
    for path, program in files.items():
        path.write_text(program)
    argv = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(ROOT / ".mypy_cache/users"),
    ]
    place = next(iter(files)).parent
    return subprocess.run(
        [*argv, *(path.name for path in files)],
        capture_output=True,
        text=True,
        cwd=place,
    )


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """mypy's messages for each program, from one run for all."""
    place = tmp_path_factory.mktemp("programs")
    files = {
        place / f"program_{number}.py": program
        for number, program in enumerate([*PROGRAMS, *WRONG])
    }
    checked = strictly(files)
    assert checked.returncode == 1, checked.stderr
    lines = checked.stdout.splitlines()
    assert len(lines) == 1 + sum(line.startswith("program_") for line in lines), (
        "a fault of none of them"
    )
    return {
        program: "\n".join(line for line in lines if line.startswith(f"{path.name}:"))
        for path, program in files.items()
    }


@pytest.mark.parametrize(
    "program", PROGRAMS, ids=lambda program: program.strip().splitlines()[-1][:30]
)
def test_a_users_program_type_checks_strictly(
    program: str, said: dict[str, str]
) -> None:
    assert said[program] == ""


@pytest.mark.parametrize("program", WRONG)
def test_a_program_with_a_type_error_is_refused(
    program: str, said: dict[str, str]
) -> None:
    assert ": error: " in said[program]
    assert WRONG[program] in said[program]
