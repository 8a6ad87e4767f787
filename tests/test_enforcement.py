"""What the operator enforces binds Python, tools and kept sessions as it binds the command line."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import belljar
from belljar import (
    Allow,
    Host,
    Limits,
    Policy,
    Pool,
    Session,
    ToolRegistry,
    enforcement,
)
from belljar.audit.writer import Audit, NoAudit
from belljar.errors import AuditError, UsageError
from belljar.options import FIELDS, SandboxOptions

Enforce = Callable[[str], None]


@pytest.fixture
def enforce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Enforce:
    operator = tmp_path / "operator.toml"
    monkeypatch.setattr(enforcement, "OPERATOR", operator)

    def write(lines: str) -> None:
        operator.write_text(f"[enforce]\n{lines}\n")
        operator.chmod(0o644)

    return write


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ('memory = "256m"', {"limits": Limits(memory="300m")}),
    ("cpus = 1", {"limits": Limits(cpus=2)}),
    ("lease = 60", {"lease": 61.0}),
    ('image = ["base", "house"]', {"image": "python"}),
    ('policy = "strict"', {"policy": "default"}),
    ('policy = "strict"', {"policy": Policy.load("permissive")}),
    ('network = "none"', {"network": "full"}),
    ('network = "none"', {"network": Allow("a.example")}),
    ('changes = "staged"', {"changes": "direct"}),
    ("root = false", {"root": True}),
    ("debug = false", {"debug": True}),
    ("allow_home = false", {"allow_home": True}),
    ("mounts = []", {"mounts": {"/data": "/srv"}}),
    ('mounts = ["/srv/shared"]', {"mounts": {"/data": "/srv/shared-not"}}),
    ('mounts = ["/srv/shared"]', {"mounts": {"/data": "/srv/shared/../private"}}),
    ("cache = []", {"cache": {"pip": "~/.cache/pip"}}),
    ('cache = ["npm"]', {"cache": {"pip": "~/.cache/pip"}}),
]


@pytest.mark.parametrize(("lines", "options"), REFUSED, ids=range(len(REFUSED)))
async def test_what_is_not_allowed_is_refused_on_every_way_to_a_session(
    lines: str, options: dict[str, Any], enforce: Enforce, tmp_path: Path
) -> None:
    enforce(lines)
    host = Host(run=tmp_path / "run", state=tmp_path / "state")
    for way in (lambda: Session(host=host, **options), lambda: Pool(host=host, **options),
                lambda: Session.of(SandboxOptions(**options), host=host)):  # fmt: skip
        with pytest.raises(UsageError, match=r"on this machine \(.*enforces it\)"):
            way()
    with pytest.raises(UsageError, match="on this machine"):
        await belljar.run("true", host=host, **options)


def test_what_is_allowed_passes_and_is_the_default(
    enforce: Enforce, tmp_path: Path
) -> None:
    enforce('memory = "256m"\nimage = ["house", "base"]\npolicy = "strict"\nlease = 10\nnetwork = "none"\n'
            'changes = "staged"\nmounts = ["/srv"]\ncache = ["pip"]\nroot = false')  # fmt: skip
    host = Host(run=tmp_path / "run", state=tmp_path / "state")
    box = Session(host=host)
    assert (box.image, box.limits.memory, box.policy.name) == (
        "house",
        256 << 20,
        "strict",
    )
    assert (box.options.lease, box.options.changes) == (10.0, "staged")
    mounts, cache = {"/data": "/srv/x"}, {"pip": "~/.cache/pip"}
    Session(
        host=host,
        image="base",
        limits=Limits(memory="100m"),
        lease=5.0,
        mounts=mounts,
        cache=cache,
    )
    Session(
        host=host,
        policy=Policy.load("strict").tighten(Policy.parse('[policy]\nname = "more"\n')),
    )


def test_every_option_with_a_flag_can_be_enforced() -> None:
    """A new one is enforceable, or says here why it need not be."""
    harmless = {
        "workspace",
        "name",
        "metadata",
        "account",
        "author",
        "timezone",
        "snapshot",
    }  # what comes with one is looked at
    assert {
        name for name, one in FIELDS.items() if one.metadata["help"]
    } - harmless <= {*enforcement.KNOWN}


def test_a_mistake_in_the_table_stops_everything(
    enforce: Enforce, tmp_path: Path
) -> None:
    host = Host(run=tmp_path / "run", state=tmp_path / "state")
    for wrong in (
        "rooot = false",
        'root = "no"',
        "memory = []",
        'timeout = "soon"',
        'audit = "off"',
        'policy = "none.toml"',
    ):
        enforce(wrong)
        with pytest.raises(UsageError):
            Session(host=host)
    enforcement.OPERATOR.chmod(0o666)
    with pytest.raises(UsageError, match="chmod go-w"):
        Session(host=host)


def test_a_quota_is_the_users_own_or_everybody_s(enforce: Enforce) -> None:
    enforce('[quota]\nsessions = 3\nmemory = "4g"\n[quota.nobody]\nmemory = "8g"\n'
            "[quota.root]\ncpus = 2.5")  # fmt: skip
    nobody = pwd.getpwnam("nobody").pw_uid
    assert enforcement.quota(nobody) == {"sessions": 3, "memory": 8 << 30}
    assert enforcement.quota(4321) == {"sessions": 3, "memory": 4 << 30}
    assert enforcement.quota(0) == {"cpus": 2.5}
    assert enforcement.table() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        "[quota]\nsesions = 3",
        "[quota]\nsessions = true",
        "[quota]\nsessions = -1",
        '[quota]\nmemory = "much"',
        "[quota]\ncpus = nan",
        "[quota.ana]\ncpus = inf",
        "[quota.ana]\nimage = 1",
        '[quota]\nana = "4g"',
        "[quota.ana.deep]\ncpus = 1",
    ],
)
def test_a_mistake_in_a_quota_stops_everything(
    wrong: str, enforce: Enforce, tmp_path: Path
) -> None:
    enforce(wrong)
    host = Host(run=tmp_path / "run", state=tmp_path / "state")
    with pytest.raises(UsageError, match=r"operator.toml: \[quota"):
        Session(host=host)


async def test_an_enforced_timeout_is_a_ceiling_for_each_command(
    enforce: Enforce, workspace: Path
) -> None:
    enforce("timeout = 1")
    async with Session(workspace, keep=True, lease=60.0) as box:
        assert (await box.run("sleep 60")).cause == "timeout"
        assert (await box.run("sleep 60", timeout=30)).cause == "timeout"
        assert (await box.persistent.run("sleep 60", timeout=30)).cause == "timeout"
        shell = await box.start("sleep 60")
        assert (await shell.wait()).cause == "timeout"
        assert (
            await ToolRegistry(box).call(
                "Bash", {"command": "sleep 60", "timeout": 30_000}
            )
        ).result.cause == "timeout"  # type: ignore[union-attr]
        id = box.id
    again = await Session.attach(id)
    assert (await again.run("sleep 60")).cause == "timeout"
    await again.stop()


def test_the_trail_and_its_place_can_be_enforced(
    enforce: Enforce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    enforce(f'audit = "required"\nstate = "{state}"')
    host = Host(run=tmp_path / "run")
    monkeypatch.setenv("BELLJAR_STATE", str(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="state directory must be"):
        Session(host=host)
    monkeypatch.setenv("BELLJAR_STATE", str(state))
    monkeypatch.setenv("BELLJAR_AUDIT", "off")
    with pytest.raises(UsageError, match="audit must be required"):
        Session(host=host)
    monkeypatch.delenv("BELLJAR_AUDIT")
    assert Session(host=host).audit.required
    assert Session(
        host=Host(run=tmp_path / "run", state=state / "tenants" / "a")
    ).audit.required
    for own, said in (
        (NoAudit(state), "audit must be required"),
        (Audit(tmp_path / "own", required=True), "below it"),
    ):
        with pytest.raises(UsageError, match=said):
            Session(host=Host(run=tmp_path / "run", state=state, audit=own))
    with pytest.raises(UsageError, match="the trail is the host's"):
        Session(host=host, audit=Audit(tmp_path / "own"))


def test_where_records_must_arrive_can_be_enforced(
    enforce: Enforce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforce(f'trail = ["collector"]\n[trail]\nto = ["syslog"]\nrotate_age = "7d"\n'
            f'collector = "{tmp_path}/socket"')  # fmt: skip
    host = Host(run=tmp_path / "run", state=tmp_path / "state")
    monkeypatch.setenv("BELLJAR_TRAIL", "journald")
    audit = Session(host=host).audit
    assert audit.required
    assert [each.name for each in audit.to] == ["collector", "syslog", "journald"]
    with pytest.raises(AuditError, match=r"collector .* takes no audit records"):
        audit.record("start")
    for weaker in ("on", "off"):
        monkeypatch.setenv("BELLJAR_AUDIT", weaker)
        with pytest.raises(UsageError, match="audit must be required"):
            Session(host=host)
    monkeypatch.delenv("BELLJAR_AUDIT")
    own = Audit(tmp_path / "own", required=True)
    with pytest.raises(UsageError, match="must go to collector"):
        Session(host=Host(run=tmp_path / "run", state=tmp_path, audit=own))
    with pytest.raises(UsageError, match="the trail is the host's"):
        Session(host=Host(run=tmp_path / "run", state=tmp_path), audit=own)
    monkeypatch.setenv("BELLJAR_TRAIL", "journal")
    with pytest.raises(UsageError, match="BELLJAR_TRAIL: 'journal'"):
        Session(host=host)


@pytest.mark.parametrize(
    "wrong",
    [
        "[trail]\nto = 1",
        "[trail]\nto = [[]]",
        "[trail]\nwhere = 1",
        '[trail]\nrotate_age = "soon"',
        '[trail]\nrotate_size = "much"',
        "[trail]\nkeep = []",
        'trail = "paper"',
        "trail = []",
    ],
)
def test_a_mistake_in_how_trails_are_kept_stops_everything(
    wrong: str, enforce: Enforce, tmp_path: Path
) -> None:
    enforce(wrong)
    with pytest.raises(UsageError, match=r"operator\.toml: "):
        Session(host=Host(run=tmp_path / "run", state=tmp_path / "state"))


def test_engine_and_runtime_can_be_enforced(
    enforce: Enforce, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforce('engine = ["oci"]')
    monkeypatch.delenv("BELLJAR_ENGINE", raising=False)
    assert Host().engine_name == "oci"
    monkeypatch.setattr(
        "belljar.engines.connect", lambda *_: type("Engine", (), {"name": "docker"})()
    )
    with pytest.raises(UsageError, match="engine must be oci"):
        Host(engine="docker").connect()
    enforce('runtime = "runsc"')
    with pytest.raises(UsageError, match="runtime must be runsc"):
        Host(engine="docker", runtime="runc").connect()
    assert Host(engine="docker").connect().name == "docker"
