"""Root's collector: users append under their own names, and change nothing that is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import ordinary_user
from tests.engines.oci.test_rootless import user as user
from tests.ordinary_user import OrdinaryUser, account
from tests.surfaces.invoking import PROGRAM, Answer, belljar, environment

from belljar.audit import collector, elsewhere, reader
from belljar.audit.elsewhere import Unreachable
from belljar.audit.writer import GENESIS, Audit, Sealable, seal

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can collect")
SECONDS = 60


@dataclass(frozen=True)
class Place:
    socket: Path
    directory: Path

    @property
    def client(self) -> elsewhere.Collector:
        return elsewhere.Collector(str(self.socket))

    def of(self, uid: int) -> list[dict[str, object]]:
        return [*reader.records(self.directory / str(uid))]

    def ask(self, *argv: str) -> Answer:
        return belljar("audit", *argv, "--collected", "--directory", self.directory)


@pytest.fixture
def place() -> Iterator[Place]:
    """A directory that everybody can reach, below /run."""
    made = Path(tempfile.mkdtemp(prefix="bj-", dir="/run"))
    made.chmod(0o755)
    yield Place(made / "open" / "socket", made / "collected")
    shutil.rmtree(made)


@contextmanager
def collecting(place: Place) -> Iterator[None]:
    process = subprocess.Popen(
        [*PROGRAM, "audit", "collect", "--socket", place.socket, "--directory", place.directory],
        env=environment(),
    )  # fmt: skip
    try:
        _until(place.socket.exists)
        yield
    finally:
        process.terminate()
        process.wait()


def _until(happens: object) -> None:
    end = time.monotonic() + SECONDS
    while not happens():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def second() -> Iterator[OrdinaryUser]:
    with account("sender") as made:
        yield made


SEND = """
import socket, sys
to = socket.socket(socket.AF_UNIX)
to.connect(sys.argv[1])
to.sendall(sys.argv[2].encode())
to.shutdown(socket.SHUT_WR)
print(to.recv(1000).decode().strip())
"""


def _sends(place: Place, uid: int, text: str) -> str:
    """The answer to a user who speaks to the socket himself."""
    return subprocess.run(
        ["/usr/bin/python3", "-c", SEND, place.socket, text],
        user=uid, group=uid, extra_groups=[], cwd="/", capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip


def _line(**fields: object) -> str:
    record = {"seq": 1, "time": "2020-01-01T00:00:00.000000+00:00", **fields}
    return seal({**record, "prev": GENESIS})[0].decode()


def test_a_record_is_kept_under_the_user_whom_the_kernel_names(
    place: Place, second: OrdinaryUser
) -> None:
    forged = _line(kind="verdict", uid=0, user="root", pid=1, command="rm -rf /")
    with collecting(place):
        assert _sends(place, second.uid, forged) == "ok"
    (kept,) = place.of(second.uid)
    assert (kept["kind"], kept["uid"]) == ("collected", second.uid)
    assert str(kept["time"]) > "2026"
    assert kept["record"] == json.loads(forged)
    assert not (place.directory / "0").exists()
    (shown,) = place.ask("show", "--json").json
    assert (shown["uid"], shown["kind"]) == (second.uid, "verdict")
    assert shown["user"].startswith("bj-sender-")
    assert place.ask("verify").stdout.endswith("1 records, the chain is intact\n")


def test_nothing_a_user_sends_breaks_the_chain_or_the_list(
    place: Place, second: OrdinaryUser
) -> None:
    odd = [
        _line(kind="head_lost"),
        _line(kind="torn", bytes=5),
        _line(kind="a\nb", session={"b": []}),
        _line(kind="verdict", session="\x1b]0;x", verdict={"decision": 1, "rules": 7}),
        _line(kind="", seq=-(10**400)),
        _line(kind="x", hash="x" * 64, record={"record": []}),
        _line(kind="x\ud800", session="\ud801", odd="\udcff", **{"\udfff": 1}),
    ]
    with collecting(place):
        for line in odd:
            assert _sends(place, second.uid, line) == "ok"
        deep = f'{{"a":{"[" * 5000}{"]" * 5000}}}\n'
        nested: list[object] = []
        for _ in range(collector.DEEPEST):
            nested = [nested]
        for wrong in (
            _line(),
            _line(kind={}),
            _line(kind="x", nested=nested),
            "{}\n",
            "no json\n",
            _line()[:-1],
            _line().replace("2020", "2021"),
            deep,
        ):
            assert _sends(place, second.uid, wrong).startswith("refused"), wrong[:40]
        place.client.send([_line(kind="start").encode()])
    assert len(place.of(second.uid)) == len(odd)
    assert place.ask("verify").status == 0
    shown = place.ask("show")
    assert shown.status == 0
    assert len(shown.stdout.splitlines()) == len(odd) + 1
    assert "\x1b" not in shown.stdout


def test_a_user_cannot_take_the_socket_s_place_or_reach_the_files(
    place: Place, second: OrdinaryUser
) -> None:
    with collecting(place):
        _sends(place, second.uid, _line(kind="start"))
        for deed in ("rm -f {0}/socket", "mv {0}/socket {0}/x", "touch {0}/y",
                     "cat {1}/{2}/*", "ls {1}"):  # fmt: skip
            done = subprocess.run(
                ["sh", "-c", deed.format(place.socket.parent, place.directory, second.uid)],
                user=second.uid, group=second.uid, extra_groups=[], capture_output=True, check=False,
            )  # fmt: skip
            assert done.returncode != 0, deed
        assert place.socket.exists()


def test_an_id_without_an_account_is_refused(place: Place) -> None:
    """A user with subordinate ids has 65,536 of them: each would have a trail to fill."""
    with collecting(place):
        answer = _sends(place, 0x20000001, _line(kind="start"))
    assert "has no account" in answer
    assert not list(place.directory.iterdir())


FLOOD = """
import socket, sys, threading
def flood():
    while True:
        held = []
        for _ in range(50):
            to = socket.socket(socket.AF_UNIX)
            try:
                to.connect(sys.argv[1])
                to.sendall(b"x" * 1000)
            except OSError:
                pass
            held.append(to)
for _ in range(4):
    threading.Thread(target=flood, daemon=True).start()
print("flooding", flush=True)
threading.Event().wait()
"""


def test_a_user_who_floods_it_keeps_nobody_else_from_being_heard(
    place: Place, second: OrdinaryUser, tmp_path: Path
) -> None:
    with collecting(place):
        flood = subprocess.Popen(
            ["/usr/bin/python3", "-c", FLOOD, place.socket],
            user=second.uid, group=second.uid, extra_groups=[], cwd="/", stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert flood.stdout is not None
            flood.stdout.readline()
            audit = Audit(tmp_path, required=True, to=[place.client])
            for number in range(20):
                audit.record("start", number=number)
        finally:
            flood.kill()
            flood.wait()
            assert flood.stdout is not None
            flood.stdout.close()
    assert len(place.of(0)) == 20
    assert place.ask("verify").status == 0


def test_a_full_trail_drops_nothing_and_stops_only_its_user(
    place: Place, tmp_path: Path
) -> None:
    here = collector.Collector(place.directory, rotate_at=2000, files=2)
    trail = here._trail(1)
    one: list[Sealable] = [collector.Collected(1, 1, "x", {"kind": "start"})]
    while len([*trail.where.glob("audit.0*")]) < 2:
        trail.add(one)
    while (trail.where / "audit.jsonl").stat().st_size < 2000:
        trail.add(one)
    with pytest.raises(OSError, match="full"):
        trail.add(one)
    kept = place.of(1)
    assert kept[0]["seq"] == 1
    with pytest.raises(OSError, match="full"):
        trail.add(one)
    here._trail(2).add(one)
    assert reader.verify(place.directory / "1").ok
    for path in sorted((place.directory / "1").glob("audit.0*"))[:1]:
        os.utime(path, (1, 1))
    trail.drop_after = 3600.0
    trail.add(one)
    assert reader.verify(place.directory / "1").ok
    assert place.of(1)[0]["seq"] > 1  # type: ignore[operator]


def test_a_cut_or_missing_file_is_told_of_its_user_alone(
    place: Place, tmp_path: Path
) -> None:
    here = collector.Collector(place.directory, rotate_at=1000)
    for uid in (1, 2):
        for _ in range(20):
            here._trail(uid).add([collector.Collected(1, uid, "x", {"kind": "start"})])
    assert place.ask("verify").status == 0
    (place.directory / "1" / "audit.000002.jsonl").unlink()
    broken = place.ask("verify")
    assert broken.status == 1
    first, other = broken.stdout.splitlines()
    assert "missing" in first
    assert other.endswith("20 records, the chain is intact")
    assert place.ask("verify", "--user", "2").status == 0


LISTEN = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1]); listener.listen(); print("ready", flush=True)
while True:
    caller, _ = listener.accept()
    caller.recv(1 << 20); caller.sendall(b"ok\\n"); caller.close()
"""


def test_a_socket_that_is_not_root_s_gets_no_records(second: OrdinaryUser) -> None:
    path = second.home / "socket"
    process = subprocess.Popen(
        ["/usr/bin/python3", "-c", LISTEN, path],
        user=second.uid, group=second.uid, extra_groups=[], cwd="/", stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(Unreachable, match="is not root's"):
            elsewhere.Collector(str(path)).send([b"{}\n"])
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_only_root_collects_and_reads(second: OrdinaryUser) -> None:
    for argv in (("collect",), ("verify", "--collected"), ("show", "--collected")):
        refused = second.run("belljar", "audit", *argv, check=False)
        assert (refused.returncode, "only root" in refused.stderr) == (2, True)


def test_the_unit_runs_it() -> None:
    printed = belljar("audit", "collect", "--print-unit").stdout
    assert "ExecStart=/" in printed
    assert " audit collect\n" in printed


@pytest.mark.skipif(
    ordinary_user.reason_to_skip() is not None,
    reason=str(ordinary_user.reason_to_skip()),
)
def test_where_it_is_enforced_nothing_of_a_user_s_runs_without_it(
    place: Place, user: OrdinaryUser
) -> None:
    operator = (
        f'[enforce]\ntrail = "collector"\n[trail]\ncollector = "{place.socket}"\n'
    )
    (user.home / "sent").mkdir()
    os.chown(user.home / "sent", user.uid, user.uid)
    run = ("belljar", "run", "--workspace", "sent", "echo done > made")
    python = (sys.executable, "-c",
              "import belljar.sync as b; b.run('echo done > made', 'sent')")  # fmt: skip
    call = ("belljar", "call", "Bash", '{"command": "echo done > made"}', "--workspace", "sent")  # fmt: skip
    for argv in (run, python, call):
        refused = user.run(*argv, check=False, operator=operator)
        assert refused.returncode != 0
        assert "takes no audit records" in refused.stdout + refused.stderr
        assert not (user.home / "sent" / "made").exists()
    off = user.run(*run, check=False, operator=operator, env={"BELLJAR_AUDIT": "off"})
    assert "audit must be required" in off.stderr
    with collecting(place):
        user.run(*run, operator=operator)
    assert (user.home / "sent" / "made").read_text() == "done\n"
    kinds = [each["record"]["kind"] for each in place.of(user.uid)]  # type: ignore[index]
    assert kinds[-2:] == ["end", "session_close"]
    own = [*reader.records(user.home / ".local" / "state" / "belljar")]
    assert [each["record"] for each in place.of(user.uid)] == own[-len(kinds) :]
