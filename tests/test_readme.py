"""The READMEs' console blocks are run and their output compared. Their Python is run too."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.owners import give

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MARK = "@end of a command@"
SHOWN = README + "".join(
    (ROOT / "src/belljar" / each / "README.md").read_text()
    for each in ("staged", "surfaces/cli", "session")
)
BLOCKS = re.findall(r"^```console\n(.*?)^```", SHOWN, re.DOTALL | re.MULTILINE)


def steps(block: str) -> list[tuple[str, str]]:
    """(command, expected output) pairs."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [
        (command, rest) for command, _, rest in (part.partition("\n") for part in parts)
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("project")
    (path / "test_sum.py").write_text("def test_adds():\n    assert 1 + 1 == 2\n")
    for each in (path, path / "test_sum.py"):
        give(each)
    return path


def script(block: str) -> str:
    """One shell script for a whole block, so that variables persist. A mark follows each command's output.

    `make` prints its own set-up to stderr, which the README does not show.
    """
    lines = []
    for command, _ in steps(block):
        merged = "" if command.startswith("make") else "2>&1"
        status = 'status=$?; [ $status = 0 ] || echo "[exit $status]"'
        lines.append(f"{{ {command}\n}} {merged}; {status}; echo '{MARK}'")
    return "\n".join(lines)


def matches(expected: str, found: str) -> bool:
    pattern = re.escape(expected.rstrip("\n")).replace(re.escape("…"), ".*")
    return re.fullmatch(pattern, found.rstrip("\n"), re.DOTALL) is not None


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_readmes_commands_print_what_it_shows(number: int, project: Path) -> None:
    block = BLOCKS[number]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {
        "BELLJAR_STATE": str(project.parent / f"state-{number}")
    }  # otherwise `--undo` may undo another block's
    environment = {
        **os.environ,
        **own,
        "PATH": path,
        "PROJECT": str(project),
        "GITHUB_ACTIONS": "",
    }
    cwd = ROOT if "make sandbox" in block else project
    shell = ["bash", "-c", script(block)]
    ran = subprocess.run(
        shell,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    answers = ran.stdout.split(f"{MARK}\n")
    for (command, expected), found in zip(steps(block), answers, strict=False):
        assert matches(expected, found), (
            f"$ {command}\n{found}\n(the README says)\n{expected}"
        )


PROGRAMS = re.findall(r"^```python\n(.*?)^```", SHOWN, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_readmes_python_runs(number: int, project: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAMS[number]],
        capture_output=True,
        text=True,
        cwd=project,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "hi"
    assert ran.stdout.splitlines()[-1] == ("['notes.txt']", "deny")[number]


def test_the_readme_shows_every_command_there_is() -> None:
    belljar = Path(sys.executable).with_name("belljar")
    shown = subprocess.run(
        [belljar, "--help"], capture_output=True, text=True, check=True
    )
    for name in re.findall(r"^    ([a-z]+) ", shown.stdout, re.MULTILINE):
        assert re.search(rf"\b{name}\b", README), (
            f"the README does not mention `belljar {name}`"
        )


def test_every_variable_that_is_read_is_documented() -> None:
    read = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"\"(BELLJAR_[A-Z_]+)\"", path.read_text())
    }
    texts = README + "".join(
        path.read_text() for path in (ROOT / "src").rglob("README.md")
    )
    # For tests only; a secret of the init; fields of journald's.
    inner = {"BELLJAR_LINK", "BELLJAR_TOKEN", "BELLJAR_SEQ", "BELLJAR_KIND"}
    inner |= {"BELLJAR_SESSION"}
    assert {name for name in read - inner if name not in texts} == set()
