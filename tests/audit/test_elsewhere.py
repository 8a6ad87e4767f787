"""Records arrive in journald, syslog and the collector, or the caller is told."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar.audit import elsewhere, reader
from belljar.audit.elsewhere import Journald, Syslog
from belljar.audit.writer import Audit, unseal
from belljar.errors import AuditError

JOURNALD = shutil.which("systemd-journald", path="/lib/systemd:/usr/lib/systemd")
RSYSLOGD = shutil.which(
    "rsyslogd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin"
)
SECONDS = 60


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose sockets have short paths."""
    made = Path(
        tempfile.mkdtemp(prefix="bj-", dir="/run" if os.geteuid() == 0 else None)
    )
    yield made
    shutil.rmtree(made)


@pytest.fixture
def daemon(short: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(short / "log"))
        listener.settimeout(SECONDS)
        yield listener


def test_journald_gets_each_record_whole_with_fields_to_search_by(
    daemon: socket.socket, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "JOURNAL", str(short / "log"))
    audit = Audit(tmp_path, to=[Journald()])
    audit.record("verdict", session="bj-1", command="a\nMESSAGE=forged\n")
    fields = dict(
        line.split("=", 1) for line in daemon.recv(1 << 20).decode().splitlines()
    )
    assert fields["BELLJAR_KIND"] == "verdict"
    assert fields["SYSLOG_IDENTIFIER"] == "belljar"
    record = unseal(fields["MESSAGE"].encode())
    assert record is not None
    assert record["command"] == "a\nMESSAGE=forged\n"
    assert [record] == list(reader.records(tmp_path))


def test_a_record_that_no_datagram_holds_goes_through_a_sealed_file(
    daemon: socket.socket, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "JOURNAL", str(short / "log"))
    audit = Audit(tmp_path, to=[Journald()])
    audit.record("verdict", texts=[f"{n} " * 2000 for n in range(200)])
    _, [file], _, _ = socket.recv_fds(daemon, 1 << 20, 1)
    with os.fdopen(file, "rb") as sent:
        sent.seek(0)
        message = sent.read().decode().splitlines()[0]
    assert len(message) > 1 << 18
    assert unseal(message.removeprefix("MESSAGE=").encode()) is not None


def test_syslog_gets_a_line_of_its_length_with_the_chain(
    daemon: socket.socket, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "SYSLOG", str(short / "log"))
    audit = Audit(tmp_path, to=[Syslog()])
    audit.record("start", session="bj-1", command="ls")
    audit.record("start", session="bj-1", command=["x" * 5000] * 3)
    whole, cut = (daemon.recv(1 << 20).decode() for _ in range(2))
    assert whole.startswith("<85>")
    first, second = reader.records(tmp_path)
    assert unseal(whole.partition("]: ")[2].encode()) == first
    assert len(cut) < 8 << 10
    told = json.loads(cut.partition("]: ")[2])
    assert (told["seq"], told["hash"]) == (2, second["hash"])
    assert "command" not in told


@pytest.mark.parametrize("name", elsewhere.NAMES)
def test_where_nobody_takes_records_a_required_trail_stops_and_others_warn_once(
    name: str, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for path in ("JOURNAL", "SYSLOG"):
        monkeypatch.setattr(elsewhere, path, str(short / "nobody"))
    to = elsewhere.opened([name], str(short / "nobody"))
    lazy = Audit(tmp_path / "a", to=to)
    lazy.record("start")
    lazy.record("end")
    assert [record["kind"] for record in reader.records(tmp_path / "a")] == [
        "start",
        "end",
    ]
    assert caplog.text.count("takes no audit records") == 1
    with pytest.raises(
        AuditError, match=rf"{name} \(.*nobody\) takes no audit records"
    ):
        Audit(tmp_path / "b", required=True, to=to).record("start")


@pytest.mark.skipif(RSYSLOGD is None, reason="rsyslog is not installed")
def test_a_real_rsyslog_writes_the_record(
    short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "SYSLOG", str(short / "log"))
    settings = short / "rsyslog.conf"
    settings.write_text(
        f'module(load="imuxsock" SysSock.Use="off")\n'
        f'input(type="imuxsock" Socket="{short}/log")\n'
        f'authpriv.notice action(type="omfile" file="{short}/out")\n'
    )
    assert RSYSLOGD is not None
    process = subprocess.Popen(
        [RSYSLOGD, "-n", "-f", settings, "-i", short / "pid"], cwd="/"
    )
    try:
        _until(lambda: (short / "log").exists())
        audit = Audit(tmp_path, required=True, to=[Syslog()])
        audit.record("verdict", command="rm -rf build")
        _until(lambda: (short / "out").exists() and (short / "out").read_text())
    finally:
        process.terminate()
        process.wait()
    (record,) = reader.records(tmp_path)
    line = (short / "out").read_text()
    assert f" belljar[{os.getpid()}]: " in line
    assert unseal(line.partition("]: ")[2].strip().encode()) == record


# /run of its own, so that the machine's own journald, if there is one, is left alone.
APART = """
set -e
mount -t tmpfs none /run; mkdir -p /run/log/journal /run/systemd
"$1" >/dev/null 2>&1 & journald=$!; trap 'kill $journald' EXIT
until test -S /run/systemd/journal/socket; do sleep 0.05; done
"$2" -c "$SEND" "$TRAIL"
for _ in $(seq 60); do
    journalctl -D /run/log/journal -t belljar -o json --all --no-pager > /run/out 2>/dev/null || true
    test "$(wc -l < /run/out)" -lt 2 || break
    sleep 0.5
done
cat /run/out
"""
SEND = """
import sys
from pathlib import Path
from belljar.audit.elsewhere import Journald
from belljar.audit.writer import Audit
audit = Audit(Path(sys.argv[1]), required=True, to=[Journald()])
audit.record("verdict", session="bj-0123456789ab", command="rm -rf build")
audit.record("end", texts=[f"{n} " * 2000 for n in range(200)])
"""


@pytest.mark.skipif(JOURNALD is None, reason="systemd-journald is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a journald apart")
def test_a_real_journald_keeps_the_records_and_says_whose_they_are(
    tmp_path: Path,
) -> None:
    assert JOURNALD is not None
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private",
         "bash", "-c", APART, "bash", JOURNALD, sys.executable],
        env={**os.environ, "SEND": SEND, "TRAIL": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    kept = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
    assert [each["BELLJAR_KIND"] for each in kept] == ["verdict", "end"], done.stderr
    assert {each["_UID"] for each in kept} == {"0"}
    assert [unseal(each["MESSAGE"].encode()) for each in kept] == list(
        reader.records(tmp_path)
    )


def _until(happens: object) -> None:
    end = time.monotonic() + SECONDS
    while not happens():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)
