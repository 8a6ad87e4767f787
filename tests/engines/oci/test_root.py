"""Root inside, an ordinary user outside: packages can be installed, and nothing of it reaches the host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engines.oci.conftest import needs_runc
from tests.network.package_mirrors import lay_out, unpack_pip

import belljar
from belljar.engines.base import image_store
from belljar.errors import ProtectionMissing, UsageError
from belljar.host import Host
from belljar.images import catalog
from belljar.options import SandboxOptions
from belljar.sandbox import rundir, scratch, verification
from belljar.sandbox.launch import launch

pytestmark = needs_runc


@pytest.fixture
async def box(host: Host, root_workspace: Path) -> AsyncIterator[belljar.Session]:
    options = {"policy": "permissive", "approve": lambda verdict: True}
    async with belljar.Session(
        root_workspace, host=host, root=True, **options
    ) as opened:
        yield opened


async def script(box: belljar.Session, text: str) -> belljar.Result:
    """Run `text` from a file, so that the policy does not judge it."""
    path = Path(box.workspace.path, ".script")
    path.write_text(text)
    return await box.run(["bash", "/workspace/.script"], timeout=120)


def package(path: Path) -> None:
    """A Debian package with a program, a set-uid program, a set-gid directory and a script that adds a user."""
    tree = path.parent / "package"
    for name in ("DEBIAN", "usr/bin", "var/lib/greeter"):
        (tree / name).mkdir(parents=True)
    control = "Package: greeter\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.test>\nDescription: hi\n"
    (tree / "DEBIAN/control").write_text(control)
    (tree / "DEBIAN/postinst").write_text(
        "#!/bin/sh\nset -e\nuseradd --system greeter\nchown greeter /var/lib/greeter\n"
    )
    (tree / "usr/bin/greet").write_text("#!/bin/sh\necho installed\n")
    (tree / "usr/bin/greet-root").write_text("#!/bin/sh\n")
    for name, mode in (
        ("DEBIAN/postinst", 0o755),
        ("usr/bin/greet", 0o755),
        ("usr/bin/greet-root", 0o4755),
    ):
        (tree / name).chmod(mode)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", tree, path],
        check=True,
        capture_output=True,
    )


async def test_a_debian_package_is_installed(box: belljar.Session) -> None:
    package(Path(box.workspace.path) / "greeter.deb")

    result = await script(
        box,
        "apt-get install -y ./greeter.deb >log 2>&1 || cat log; greet; stat -c %U /var/lib/greeter",
    )

    assert result.stdout == "installed\ngreeter\n", result.output


async def test_a_python_package_is_installed_into_the_system(
    box: belljar.Session,
) -> None:
    workspace = Path(box.workspace.path)
    lay_out(workspace, "")
    unpack_pip(workspace / "pip")

    result = await script(
        box,
        """PYTHONPATH=pip python3 -m pip install -q --break-system-packages --no-index wheels/*.whl
        python3 -c 'import hellodoor; print(hellodoor.__file__)'""",
    )
    said, where = result.stdout.splitlines()
    assert said == "hello from outside", result.output
    assert where.startswith("/usr/local/lib/"), result.output


async def test_a_node_package_is_installed_into_the_system(
    host: Host, root_workspace: Path
) -> None:
    """By default npm installs into the home, which is on PATH; with `--prefix` into the system."""
    if host.connect().image(catalog.reference("node")) is None:
        pytest.skip(
            "the image node is not built here: BELLJAR_ENGINE=oci belljar images build node"
        )
    lay_out(root_workspace, "")
    async with belljar.Session(
        root_workspace, host=host, root=True, image="node"
    ) as box:
        result = await script(
            box,
            """npm install -g --silent --offline ./tarballs/*.tgz; hellodoor
            npm install -g --silent --offline --prefix /usr/local ./tarballs/*.tgz; /usr/local/bin/hellodoor""",
        )
    assert result.stdout == "hello from outside\n" * 2, result.output


async def test_root_s_files_in_the_workspace_belong_to_its_owner(
    box: belljar.Session,
) -> None:
    await script(box, "echo made > made; chown 0:0 made")

    assert (Path(box.workspace.path) / "made").stat().st_uid == os.geteuid()


GIVE_CAPABILITIES = """
import os, shutil, struct
for place in ("/workspace/capable", "/usr/bin/capable"):
    shutil.copy("/usr/bin/id", place)
    for value in (struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0), struct.pack("<6I", 0x03000001, 1 << 7, 0, 0, 0, 0)):
        try:
            os.setxattr(place, "security.capability", value)
            print("BREACH", place)
        except OSError as refused:
            print(refused.strerror)
"""


async def test_no_file_gets_a_capability(box: belljar.Session) -> None:
    """In root's workspace the capability would also work on the host, for every user who runs the file."""
    path = Path(box.workspace.path, "give.py")
    path.write_text(GIVE_CAPABILITIES)
    result = await box.run(["python3", "/workspace/give.py"], timeout=60)
    assert result.stdout.splitlines() == ["Operation not permitted"] * 4, result.output
    assert "security.capability" not in os.listxattr(path.with_name("capable"))


async def test_root_inside_can_make_no_set_id_file(box: belljar.Session) -> None:
    result = await script(
        box,
        """cp /bin/true mine; chmod 6755 mine; stat -c %a mine
        cp /bin/true /usr/bin/its; chmod u+s /usr/bin/its; stat -c %a /usr/bin/its
        python3 -c 'import os; os.open("new", os.O_CREAT | os.O_WRONLY, 0o4755)' 2>&1 | tail -1""",
    )
    assert result.stdout.splitlines()[:2] == ["755", "755"]
    assert "Operation not permitted" in result.stdout
    assert not any(
        path.stat().st_mode & 0o6000 for path in Path(box.workspace.path).iterdir()
    )


async def test_root_inside_cannot_do_what_is_forbidden(box: belljar.Session) -> None:
    result = await script(
        box,
        """mount -t tmpfs x /mnt && echo BREACH mount
        mknod /tmp/disk b 8 0 && echo BREACH mknod
        unshare -U true && echo BREACH unshare
        echo 1 > /proc/sys/vm/drop_caches && echo BREACH sysctl
        cat /proc/1/environ && echo BREACH environ
        cat /.belljar-*/init >/dev/null && echo BREACH init
        touch /.belljar-*/link/x && echo BREACH link
        chmod 777 /.belljar-*/init && echo BREACH mode
        kill -9 1; python3 -c 'import os; os.setuid(1); os.kill(1, 9)'
        echo alive""",
    )
    assert "BREACH" not in result.output
    assert result.stdout.endswith("alive\n")


async def test_changes_to_the_root_file_system_end_with_the_session(
    box: belljar.Session, host: Host, root_workspace: Path
) -> None:
    await script(
        box, "echo changed > /etc/issue; rm -rf /usr/share/doc; touch /root/left"
    )
    await box.close()

    async with belljar.Session(root_workspace, host=host) as other:
        result = await other.run("cat /etc/issue; ls -d /usr/share/doc", timeout=30)
    assert "changed" not in result.output
    assert "/usr/share/doc" in result.output


def test_root_inside_is_not_root_outside_and_has_its_own_user_namespace(
    host: Host, workspace: Path
) -> None:
    made = launch(
        SandboxOptions(str(workspace), root=True), rundir.new_session_id(), host
    )
    try:
        status = Path(f"/proc/{made.launched.pid}/status").read_text()
        uids = next(
            line for line in status.splitlines() if line.startswith("Uid:")
        ).split()[1:]
        assert "0" not in uids
        assert os.readlink(f"/proc/{made.launched.pid}/ns/user") != os.readlink(
            "/proc/self/ns/user"
        )
    finally:
        made.discard()


async def test_a_command_runs_as_another_user_of_the_sandbox(
    box: belljar.Session,
) -> None:
    assert (
        await box.run("id -un; echo $HOME $USER", user="root")
    ).stdout == "root\n/root root\n"
    await box.run(
        "touch /root/left; chmod 700 /root; echo 'guest:x:1234:1235::/tmp/guest:/bin/sh' >> /etc/passwd;"
        "echo 'team:x:77:guest' >> /etc/group"
    )
    told = await box.run(
        "id -u; id -G; echo $HOME $USER; grep CapEff /proc/self/status", user="guest"
    )
    assert told.stdout == "1234\n1235 77\n/tmp/guest guest\nCapEff:\t0000000000000000\n"
    assert (await box.run(["id", "-u"], user=4321)).stdout == "4321\n"
    assert (await box.run("tty >/dev/tty", user="guest", pty=True)).output.startswith(
        "/dev/pts/"
    )
    assert (await box.run("touch /etc/new", user="guest")).exit_code == 1
    with pytest.raises(UsageError, match="no user 'nosuch'"):
        await box.run("id", user="nosuch")
    with pytest.raises(PermissionError):
        await box.run(["/root/left"], user="guest")


async def test_commands_of_other_users_are_killed_with_all_their_processes(
    box: belljar.Session,
) -> None:
    result = await box.run(
        "sleep 600 & setsid sleep 600 & sleep 600", user=4321, timeout=1
    )
    assert result.cause == "timeout"
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"


def test_more_capabilities_than_were_asked_for_stop_the_run(
    host: Host, workspace: Path
) -> None:
    original = verification.ROOT_CAPABILITIES
    fewer = {
        name: number for name, number in original.items() if name != "CAP_CHOWN"
    } | {"CAP_CHOWN": 60}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "ROOT_CAPABILITIES", fewer)
        with pytest.raises(ProtectionMissing, match="no other capabilities"):
            launch(
                SandboxOptions(str(workspace), root=True), rundir.new_session_id(), host
            )


@pytest.mark.docker
def test_an_engine_without_user_namespaces_refuses(workspace: Path) -> None:
    host = Host(engine="docker")
    catalog.ensure(image_store(host.connect()), "base")
    with pytest.raises(UsageError, match="use the engine oci"):
        launch(SandboxOptions(str(workspace), root=True), rundir.new_session_id(), host)


@pytest.mark.skipif(
    scratch.possible() is not None, reason=f"no volumes here: {scratch.possible()}"
)
async def test_the_root_file_system_is_bounded_by_its_volume(
    host: Host, root_workspace: Path
) -> None:
    limits = belljar.Limits(disk="64m")
    async with belljar.Session(
        root_workspace, host=host, root=True, limits=limits
    ) as box:
        result = await script(
            box,
            "head -c 100m /dev/zero > /var/fill || { stat -c %s /var/fill; exit 1; }",
        )
    assert 32 << 20 < int(result.stdout) < 64 << 20
    assert "No space left" in result.stderr
    assert any("--disk" in hint for hint in result.hints_for("cli"))
