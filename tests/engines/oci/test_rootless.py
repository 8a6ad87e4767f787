"""The engine `oci` for an ordinary user: a real account with subordinate ids and control groups."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import ordinary_user
from tests.images.archives import directory, member, tar
from tests.ordinary_user import CHECKOUT, OrdinaryUser

from belljar.engines.oci import find
from belljar.images import catalog
from belljar.images.store import Store

pytestmark = pytest.mark.skipif(
    ordinary_user.reason_to_skip() is not None,
    reason=str(ordinary_user.reason_to_skip()),
)


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    """A user who already has the image `base`, imported from root's store."""
    reference = catalog.ensure(find().images, "base")
    store = Store()
    image = store.find(reference)
    assert image is not None
    with ordinary_user.ordinary_user() as made:
        [layer] = store.layer_directories(image)
        tar = made.home / "base.tar"
        subprocess.run(["tar", "-C", layer, "-cf", tar, "."], check=True)
        made.python("-m", "belljar", "images", "import", str(tar), "--name", reference)
        tar.unlink()
        yield made


def test_an_ordinary_user_passes_the_engine_contract(user: OrdinaryUser) -> None:
    tests = f"{CHECKOUT}/tests/engines/test_contract.py"
    done = user.python(
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-pno:cacheprovider",
        tests,
        check=False,
        BELLJAR_TEST_ENGINES="oci",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


STAGED = """
import os
from belljar.sync import Session
os.mkdir("staged")
for name in ("kept", "changed", "deleted"):
    open(f"staged/{name}", "w").write("before")
with Session("staged", changes="staged") as box:
    assert box.run("cat kept; echo after > changed; rm deleted; mkdir new; touch new/file; id -u").exit_code == 0
    assert sorted(os.listdir("staged")) == ["changed", "deleted", "kept"]
    print(*sorted(f"{each.kind}:{each.path}" for each in box.changes()))
    box.apply()
print(open("staged/changed").read().strip(), os.path.exists("staged/deleted"), os.stat("staged/new/file").st_uid)
"""


def test_staged_changes_reach_the_workspace_only_when_applied(
    user: OrdinaryUser,
) -> None:
    changes, applied = user.python("-c", STAGED).stdout.splitlines()
    assert changes == "added:new added:new/file deleted:deleted modified:changed"
    assert applied == f"after False {user.uid}"


ROOT = """
import os
from belljar.sync import Session
os.mkdir("rooted")
open("rooted/change.sh", "w").write(
    "id -u; touch /usr/bin/mine made; chown daemon:adm /usr/bin/mine; stat -c %U:%G /usr/bin/mine / /usr/bin/env;"
    "rm /usr/bin/env && echo removed"
)
with Session("rooted", root=True) as box:
    print(box.run("sh change.sh").output)
print(os.stat("rooted/made").st_uid)
"""


def test_root_inside_is_the_caller_outside_and_may_change_the_whole_system(
    user: OrdinaryUser,
) -> None:
    words = user.python("-c", ROOT).stdout.split()
    assert words == [
        "0",
        "daemon:adm",
        "root:root",
        "root:root",
        "removed",
        str(user.uid),
    ]


MANY_MOUNTS = """
import os
from belljar.sync import Session
os.mkdir("deep")
os.mkdir("data")
open("data/word", "w").write("read me")
targets = ["/" + "/".join(chr(0xE0 + n) * 110 for _ in range(18)) for n in range(16)]
with Session("deep", mounts={target: "data" for target in targets}) as box:
    print(*(box.run(["cat", f"{target}/word"]).output for target in targets), sep="|")
"""


def test_a_sandbox_with_many_long_mount_points_starts(user: OrdinaryUser) -> None:
    """Its description is longer than the kernel allows for one argument."""
    assert user.python("-c", MANY_MOUNTS).stdout.strip() == "|".join(["read me"] * 16)


STAGED_ROOT = """
import os
from belljar.sync import Session
os.makedirs("given/away")
open("given/go.sh", "w").write("chown -R daemon:daemon away && stat -c %U away")
with Session("given", changes="staged", root=True) as box:
    print(box.run("sh go.sh").output.strip())
print(*[name for name in os.listdir(os.path.expanduser("~/.local/state/belljar/staged")) if name.endswith(".gone")])
"""


def test_a_staged_workspace_with_files_of_other_owners_is_removed(
    user: OrdinaryUser,
) -> None:
    assert user.python("-c", STAGED_ROOT).stdout.split() == ["daemon"]


def test_doctor_names_the_protections_that_an_ordinary_user_lacks(
    user: OrdinaryUser,
) -> None:
    said = user.python("-m", "belljar", "doctor").stdout
    assert "FAIL" not in said
    for words in (
        "only root can mount a volume",
        "not by a control group",
        "checkpoints are copies",
    ):
        assert words in said


def test_without_a_control_group_the_error_says_how_to_get_one(
    user: OrdinaryUser,
) -> None:
    done = user.python(
        "-m", "belljar", "run", "true", check=False, BELLJAR_CGROUP="/nobody/gave-this"
    )
    assert done.returncode == 125
    assert re.search(r"mkdir -p .*/nobody/gave-this; chown -R", done.stderr)


def test_crun_which_would_limit_nothing_is_refused(user: OrdinaryUser) -> None:
    """crun would leave the sandbox in the caller's own group. Verification would notice, but only later."""
    program = user.home / "crun"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = user.python(
        "-m", "belljar", "doctor", check=False, BELLJAR_RUNTIME=str(program)
    )
    assert (
        "with control groups version 1, crun sets no limits for an ordinary user: use runc"
        in done.stdout
    )


def test_doctor_names_all_that_is_missing_and_offers_unused_ids(
    user: OrdinaryUser, tmp_path: Path
) -> None:
    uid = (
        0x10000000 + os.getpid()
    )  # has no account: the id after that of `user` may belong to another test run
    os.chown(tmp_path, uid, uid)
    someone = OrdinaryUser(uid, tmp_path)
    said = someone.python("-m", "belljar", "doctor", check=False).stdout
    assert "in /etc/subuid and /etc/subgid: `sudo usermod --add-subuids" in said
    assert f"sudo belljar setup-user {someone.uid}" in said
    first, last = map(int, said.split("--add-subuids ")[1].split()[0].split("-"))
    for line in Path("/etc/subuid").read_text().splitlines():
        start, count = map(int, line.split(":")[1:])
        assert last < start or first >= start + count, (
            f"ids of {line} were offered to another"
        )


def test_images_of_a_user_s_store_can_be_removed_with_all_their_owners(
    user: OrdinaryUser,
) -> None:
    made = user.home / "some.tar"
    made.write_bytes(
        tar(
            [
                directory("etc"),
                member("etc/theirs", b"x", uid=1000),
                directory("closed", mode=0, uid=7),
            ]
        )
    )
    user.python("-m", "belljar", "images", "import", str(made), "--name", "some")
    layers = user.home / ".local/state/belljar/images/layers"
    [theirs] = layers.glob("*/root/etc/theirs")
    assert theirs.stat().st_uid not in (0, 1000, user.uid)
    user.python("-m", "belljar", "images", "remove", "some")
    assert not theirs.exists()


QUOTA = """
import belljar, sys
from belljar.sync import Session
try:
    Session("quota").__enter__()
except belljar.errors.QuotaExceeded as exceeded:
    print(exceeded)
"""


def test_a_quota_holds_on_every_surface_and_names_what_takes_it(
    user: OrdinaryUser,
) -> None:
    """The command line, tools and Python; no variable leads around it."""
    name = pwd.getpwuid(user.uid).pw_name
    operator = "[quota]\nsessions = 1\n"
    (user.home / "quota").mkdir()
    os.chown(user.home / "quota", user.uid, user.uid)
    start = ("belljar", "session", "start", "--workspace", "quota")
    id = user.run(*start, operator=operator).stdout.strip()
    elsewhere = {
        "BELLJAR_RUN": f"{user.home}/r",
        "BELLJAR_STATE": f"{user.home}/s",
        "BELLJAR_IMAGES": f"{user.home}/.local/state/belljar/images",
    }
    call = ("belljar", "call", "Bash", '{"command": "true"}', "--workspace", "quota")
    try:
        for argv in (
            ("belljar", "run", "--workspace", "quota", "true"),
            call,
            (sys.executable, "-c", QUOTA),
        ):
            for env in ({}, elsewhere):
                refused = user.run(*argv, env=env, check=False, operator=operator)
                said = refused.stdout + refused.stderr
                assert f"the quota of {name} on this machine is used up" in said, said
                assert f"Taken by {id} ({user.home}/quota)" in said
        assert (
            "quota.sessions" in user.run("belljar", "config", operator=operator).stdout
        )
    finally:
        user.run("belljar", "session", "stop", id, operator=operator)
    again = user.run(
        "belljar", "run", "--workspace", "quota", "true", operator=operator
    )
    assert again.returncode == 0
