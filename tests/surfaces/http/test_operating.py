"""`belljar serve --check` and `--print-unit` (operating.py)."""

from __future__ import annotations

import configparser
import os
import shlex
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.surfaces.http.postgres import postgres
from tests.surfaces.http.serving import serving

from belljar.surfaces.http import operating  # noqa: F401 - what these tests are about


def _serve(state: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "belljar", "serve", "--listen", "127.0.0.1:0", *options], capture_output=True, text=True,
        env={**os.environ, "BELLJAR_STATE": str(state), **env}, timeout=120, check=False,
    )  # fmt: skip


def _line(told: str, name: str) -> str:
    return next(line for line in told.splitlines() if f"  {name}: " in line)


def test_a_good_configuration(tmp_path: Path) -> None:
    ran = _serve(tmp_path, "--check")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "will be made" in _line(ran.stdout, "database")
    assert _line(ran.stdout, "a real sandbox").startswith("ok")
    assert not (tmp_path / "serve" / "service.db").exists()


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("nonsense")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = _serve(
            tmp_path, "--check", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--tls-cert", f"{tmp_path}/c.pem",
            "--tls-key", f"{tmp_path}/c.pem", BELLJAR_DATABASE="postgresql://ana:secret@127.0.0.1:1/x",
        )  # fmt: skip
    assert ran.returncode == 1
    for name in ("address", "certificate", "database"):
        assert _line(ran.stdout, name).startswith("FAIL")
    assert "secret" not in ran.stdout + ran.stderr


def test_a_certificate_that_has_ended(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k.pem", "-out", "c.pem", "-days", "1",
         "-subj", "/CN=x"], cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    ran = _serve(
        tmp_path,
        "--check",
        "--tls-cert",
        f"{tmp_path}/c.pem",
        "--tls-key",
        f"{tmp_path}/k.pem",
    )
    assert _line(ran.stdout, "certificate").startswith("note")
    assert "renew it" in ran.stdout


def test_a_database_of_a_newer_version(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    database = tmp_path / "serve" / "service.db"
    assert ", step " in _line(_serve(tmp_path, "--check").stdout, "database")
    subprocess.run(
        [sys.executable, "-c", "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
         "c.execute(\"update alembic_version set version_num = '9999'\"); c.commit()", str(database)], check=True,
    )  # fmt: skip
    assert "newer belljar" in _line(_serve(tmp_path, "--check").stdout, "database")


def test_a_backup_of_a_running_server_starts_another(tmp_path: Path) -> None:
    (old := tmp_path / "old").mkdir(0o700)
    (new := tmp_path / "new" / "serve").mkdir(0o700, parents=True)
    new.parent.chmod(0o700)
    with serving(old) as server:
        key = server.key("read")["key"]
        source, copy = (
            sqlite3.connect(at / "service.db") for at in (old / "serve", new)
        )
        source.backup(copy)
        source.close()
        copy.close()
    with serving(new.parent) as restored, restored.with_key(key) as client:
        assert client.get("/v1/keys/self").status_code == 200


def test_an_empty_postgresql(tmp_path: Path) -> None:
    with postgres() as url:
        assert _line(
            _serve(tmp_path, "--check", "--database", url).stdout, "database"
        ).endswith(": empty")


@pytest.mark.parametrize("kind", ["system", "user"])
def test_the_unit_starts_the_same_server(tmp_path: Path, kind: str) -> None:
    told = _serve(
        tmp_path,
        "--print-unit",
        kind,
        "--output-kept",
        "1m",
        "--public-url",
        "https://x/",
        "--engine",
        "oci",
    )
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(told.stdout)
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[:4] == [sys.executable, "-m", "belljar", "serve"]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    assert given == {
        "--listen": "127.0.0.1:0", "--output-kept": "1m", "--public-url": "https://x/", "--engine": "oci"
    }  # fmt: skip
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Install"]["WantedBy"] == (
        "default.target" if kind == "user" else "multi-user.target"
    )


def test_systemd_is_told(tmp_path: Path) -> None:
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(60)
        with serving(
            tmp_path, env={"NOTIFY_SOCKET": str(tmp_path / "notify")}
        ) as server:
            assert told.recv(100) == b"READY=1"
            server.stop()
            assert told.recv(100) == b"STOPPING=1"
