"""The set-up program behind `make`: what it marks as done, what it prints, and what an interruption leaves."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from tests.adapters.frameworks import FRAMEWORKS

ROOT = Path(__file__).resolve().parent.parent
SETUP = ROOT / "sandbox-images/setup"
LOCKS = sorted((ROOT / "sandbox-images/setup/lock").glob("*.txt"))
PATIENCE = 120.0


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SETUP)


def locked(name: str) -> dict[str, str]:
    return dict(
        re.findall(
            r"(?m)^([a-z0-9._-]+)==(\S+)",
            (ROOT / f"sandbox-images/setup/lock/{name}.txt").read_text(),
        )
    )


# The lock.


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_locked_package_has_a_version_and_hashes_and_no_address(
    path: Path,
) -> None:
    text = path.read_text()
    entries = re.split(r"(?m)^(?=[a-z0-9])", text)[1:]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]
    assert not re.search(r"://|--index|--find-links", text)


def test_the_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups, extras = (
        project["dependency-groups"],
        project["project"]["optional-dependencies"],
    )
    together = extras.keys() - {
        framework.extra for framework in FRAMEWORKS.values()
    }  # each has its own environment
    asked = {
        "run": [
            *project["project"]["dependencies"],
            *extras["shell"],
            *groups["install"],
        ],
        "compiler": groups["compiler"],
        "test": [
            *project["project"]["dependencies"],
            *(each for name in together for each in extras[name]),
            *(
                each
                for name in ("install", "compiler", "test", "lint")
                for each in groups[name]
            ),
        ],
    }
    for kind, wanted in asked.items():
        versions = locked(kind)
        for requirement in map(Requirement, wanted):
            name = requirement.name.lower().replace("_", "-")
            if name == "belljar-sandbox":  # an extra that takes others along
                continue
            assert name in versions, (
                f"{name} is not in lock/{kind}.txt: run `make lock`"
            )
            assert requirement.specifier.contains(versions[name]), (
                f"{requirement} is not what lock/{kind}.txt has"
            )


def test_the_locks_agree_with_each_other() -> None:
    test = locked("test")
    for kind in ("run", "compiler"):
        for name, version in locked(kind).items():
            assert test[name] == version


# Marks.


def test_a_step_is_done_only_when_it_has_ended_and_nothing_it_used_has_changed(
    tmp_path: Path,
) -> None:
    from board import Board
    from checkout import Checkout

    used = tmp_path / "used"
    used.write_text("1")
    with Checkout(tmp_path / "venv", Board(io.StringIO())) as checkout:
        assert not checkout.begun("step")
        assert not checkout.done("step", used)
        assert checkout.begun("step"), "it was begun before and never ended"
        checkout.ended("step", used)
        assert checkout.done("step", used)
        assert not checkout.begun("step")
        checkout.ended("step", used)
        used.write_text("2")
        assert not checkout.done("step", used)


def test_a_directory_that_is_no_environment_of_ours_is_left_alone(
    tmp_path: Path,
) -> None:
    venv = tmp_path / "precious"
    venv.mkdir()
    (venv / "data").write_text("mine")
    command = [sys.executable, "-B", SETUP, "--venv", venv, "run"]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == 1
        assert "no virtual environment" in ended.stderr
        assert "VENV=" in ended.stderr
        assert (venv / "data").read_text() == "mine"


def test_an_environment_that_others_may_write_to_is_not_run(tmp_path: Path) -> None:
    """Otherwise `make` would run another user's programs as the caller, perhaps as root."""
    python = tmp_path / "shared/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    python.chmod(0o755)
    (tmp_path / "shared").chmod(0o777)
    ended = subprocess.run(
        [sys.executable, "-B", SETUP, "--venv", tmp_path / "shared", "run"],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert f"others own {tmp_path}/shared or may write to it" in ended.stderr
    assert os.listdir(tmp_path) == ["shared"]
    assert os.listdir(tmp_path / "shared") == ["bin"]


def test_a_place_that_cannot_be_written_is_reported_with_a_remedy() -> None:
    command = [sys.executable, "-B", SETUP, "--venv", "/proc/nowhere", "run"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 2
    assert "VENV=/some/directory" in ended.stderr


# Interruption and failure.

STEP = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from board import Board, Plan, SetupError
from checkout import Checkout

def step(report):
    checkout.begun("step")
    report(0.5, "half")
    checkout.run(["sh", "-c", sys.argv[3]], "the step")
    checkout.ended("step")

board = Board(sys.stderr)
try:
    with Checkout(Path(sys.argv[2]), board) as checkout:
        plan = Plan()
        plan.add("step", step)
        plan.carry_out(board)
except SetupError as error:
    board.failed(error)
    sys.exit(1)
except KeyboardInterrupt:
    sys.exit(130)
"""


def stepping(venv: Path, script: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-B", "-c", STEP, str(SETUP), str(venv), script]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_an_interrupted_step_ends_its_command_and_is_not_done(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    process = stepping(
        tmp_path / "venv",
        f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 600 & wait",
    )
    until = time.monotonic() + PATIENCE
    while not pid_file.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    process.wait(timeout=PATIENCE)
    os.killpg(
        process.pid, signal.SIGKILL
    )  # the command's own child, which is left over
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said
    assert not _alive(int(pid_file.read_text()))
    assert sorted(path.name for path in (tmp_path / "venv/.belljar").iterdir()) == [
        "lock",
        "setup.log",
        "step.begun",
    ]


def _alive(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("Temporary failure in name resolution", "is the network there?"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES", "not the one that was locked"),
        ("ERROR: No matching distribution found for x", "no fitting wheel"),
        (
            "Retrying after connection broken by RemoteDisconnected; No matching distribution found",
            "cannot be reached",
        ),
        ("something nobody has seen before", "something nobody has seen before"),
    ],
)
def test_a_failure_is_reported_with_reason_remedy_and_log(
    tmp_path: Path, printed: str, reason: str
) -> None:
    process = stepping(tmp_path / "venv", f"echo first; echo '{printed}' >&2; exit 4")
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert reason in said
    assert "what to do:" in said
    log = tmp_path / "venv/.belljar/setup.log"
    assert str(log) in said
    assert f"first\n{printed}\n" in log.read_text()
    assert not (tmp_path / "venv/.belljar/step.done").exists()


def test_a_forbidden_engine_must_be_fixed_before_the_next_try(tmp_path: Path) -> None:
    program = tmp_path / "venv/bin/belljar"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\necho 'belljar: you may not use it; log in again' >&2; exit 125\n"
    )
    program.chmod(0o755)
    code = f"""
import io, pathlib, steps
from board import Board, SetupError
from checkout import Checkout
with Checkout(pathlib.Path({str(tmp_path / "venv")!r}), Board(io.StringIO())) as checkout:
    try:
        steps.image(checkout, lambda *_: None)
    except SetupError as error:
        print(error.reason, error.remedy, sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=SETUP,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    reason, remedy = done.stdout.splitlines()
    assert reason == "building the base image failed: you may not use it; log in again"
    assert remedy.startswith("put that right, then run the same command again")


# The board.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _setup_engines() -> ModuleType:
    """Loaded under another name: `engines` is also a folder of tests."""
    return _load("setup_engines", SETUP / "engines.py")


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_package_scripts_can_print_while_apt_tells_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt closes its progress descriptor in its children. If that were stdout, ca-certificates would fail."""
    from board import Board
    from checkout import Checkout

    (tmp_path / "bin").mkdir()
    apt = tmp_path / "bin/apt-get"
    apt.write_text(
        "#!/bin/bash\nfor word; do case $word in APT::Status-Fd=*) fd=${word#*=};; esac; done\n"
        "echo pmstatus:x:50.0:Configuring x >&$fd\neval 'sh -c \"set -e; echo a script prints\"' $fd'>&-'\n"
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    heard: list[str] = []
    with Checkout(tmp_path / "venv", Board(io.StringIO())) as checkout:
        checkout.run(
            [*_setup_engines().APT, "install", "x"], "installing x", heard.append
        )
    assert heard == ["pmstatus:x:50.0:Configuring x", "a script prints"]


def test_a_step_with_nothing_to_do_says_nothing() -> None:
    from board import Board, Plan

    out = io.StringIO()
    plan = Plan()
    plan.add("quiet", lambda report: None)
    plan.carry_out(Board(out))
    assert out.getvalue() == ""


def test_steps_wait_for_what_they_need_and_report_their_start_and_end() -> None:
    from board import Board, Plan, Report

    out, order = io.StringIO(), []

    def step(name: str) -> None:
        def action(report: Report) -> None:
            report(0.0, f"doing {name}")
            order.append(name)
            until = time.monotonic() + PATIENCE
            while f"doing {name}" not in out.getvalue() and time.monotonic() < until:
                time.sleep(0.01)

        plan.add(name, action, after=["first"] if name == "second" else [])

    plan = Plan()
    step("second")
    step("first")
    plan.carry_out(Board(out))
    assert order == ["first", "second"]
    said = [
        line.removeprefix("belljar: ").split(":")[0]
        for line in out.getvalue().splitlines()
    ]
    assert list(dict.fromkeys(said)) == ["first", "second"]
    assert said.count("second") == 2


def test_on_a_terminal_a_running_step_rewrites_its_line() -> None:
    from board import Board

    out = Terminal()
    board = Board(out)
    report = board.report("packages")
    report(0.5, "downloading x")
    board.draw()
    assert "[##########          ]  50%" in out.getvalue()
    board.draw()
    assert "\x1b[1F\x1b[J" in out.getvalue()
    report.ended = time.monotonic()
    board.draw()
    assert out.getvalue().endswith("done in 0 s\n")


def test_a_silent_step_shows_the_progress_of_its_gauge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import board as module
    from board import Board

    monkeypatch.setattr(module, "NEWS_SECONDS", -1.0)  # report at every draw
    out, far = io.StringIO(), 0.0
    board = Board(out)
    board.report("init")(0.0, "compiling", lambda: far)
    board.draw()
    far = 0.4
    board.draw()
    far = 7.0  # more than expected
    board.draw()
    said = out.getvalue().splitlines()
    assert [line.rpartition("(")[2].partition("%")[0] for line in said] == [
        "0",
        "40",
        "99",
    ]


def test_without_a_terminal_no_step_is_silent_for_ten_seconds() -> None:
    import board as module

    assert module.NEWS_SECONDS + module.REDRAW_SECONDS < 10


def test_the_first_error_of_steps_side_by_side_is_raised() -> None:
    from board import Board, Plan, SetupError

    def fail(report: object) -> None:
        raise SetupError("broken")

    plan = Plan()
    plan.add("bad", fail)
    plan.add("good", lambda report: None)
    plan.add("later", lambda report: pytest.fail("it must not begin"), after=["bad"])
    with pytest.raises(SetupError, match="broken"):
        plan.carry_out(Board(io.StringIO()))


def test_the_groups_of_the_project_are_no_extras_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert not {"dev", "test", "lint"} & set(
        project["project"]["optional-dependencies"]
    )


# The engine.


@pytest.mark.parametrize(
    ("there", "installed"),
    [
        (
            "nothing",
            [["runc", "mmdebstrap", "debian-archive-keyring", "ca-certificates"]],
        ),
        ("runc", []),
        ("docker", []),
    ],
)
def test_a_sandbox_needs_no_engine_but_runc(
    there: str,
    installed: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For `make sandbox` without Docker and Podman. `make test` also needs Docker."""
    engines = _setup_engines()
    asked: list[list[str]] = []
    monkeypatch.setattr(engines, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(engines, "_places", list)
    monkeypatch.setattr(engines, "_client_answers", lambda: there == "docker")
    monkeypatch.setattr(engines, "_needs_no_daemon", lambda: there == "runc")
    monkeypatch.setattr(engines, "may_install", lambda: True)
    monkeypatch.setattr(
        engines, "apt_install", lambda _checkout, packages, *_: asked.append(packages)
    )
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    engines.ensure(None, lambda *_: None, daemon=False)
    assert asked == installed


@pytest.mark.parametrize("kind", ["link", "file", "open to others"])
def test_the_engine_s_lock_is_a_private_directory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = _setup_engines()
    lock, victim = tmp_path / "lock", tmp_path / "victim"
    monkeypatch.setattr(engines, "LOCK", lock)
    with engines._locked():
        assert lock.stat().st_mode & 0o777 == 0o700
    if kind == "open to others":
        lock.chmod(0o755)
    else:
        lock.rmdir()
        victim.write_text("kept") if kind == "file" else victim.mkdir(mode=0o700)
        lock.symlink_to(victim) if kind == "link" else victim.rename(lock)
    with (
        pytest.raises(engines.SetupError, match=r"cannot be used|only root"),
        engines._locked(),
    ):
        pass
    assert kind != "file" or lock.read_text() == "kept"


# The init.


@pytest.mark.root
@pytest.mark.parametrize("theirs", ["", "belljar", "file"])
def test_an_init_in_a_cache_that_others_can_write_is_not_used(
    theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = _load("init_build", ROOT / "sandbox-images/init/build.py")
    cache, output = tmp_path / "cache", tmp_path / "output"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(
        build,
        "_compile",
        lambda flags, target, environment=None, program="": _made(target, b"compiled"),
    )
    cached = (
        cache
        / "belljar/init"
        / build._digest(build._flags("x86_64"))
        / "belljar-init-x86_64"
    )
    _made(cached, b"cached")
    assert build.build("x86_64", output).read_bytes() == b"cached"
    os.chown(cached if theirs == "file" else cache / theirs, 1000, 1000)
    assert build.build("x86_64", output, compiling=False) is None
    assert build.build("x86_64", output).read_bytes() == b"compiled"
    assert cached.read_bytes() == b"cached"


def _made(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.mark.root
def test_another_user_s_compiler_cache_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = _load("init_build", ROOT / "sandbox-images/init/build.py")
    (tmp_path / "zig").mkdir()
    os.chown(tmp_path / "zig", 1000, 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places: list[str] = []

    def compile(
        flags: list[str], target: Path, environment: dict[str, str], program: str
    ) -> None:
        places.extend(
            environment[name]
            for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
        )
        _made(target, b"compiled")

    monkeypatch.setattr(build, "_compile", compile)
    build.build("x86_64", tmp_path / "output")
    assert len(places) == 2
    assert not any(place.startswith(str(tmp_path)) for place in places)
