"""Lasting shells, tools and kept sessions, with blocking calls."""

from pathlib import Path

from belljar import sync


def test_the_blocking_persistent_shell_pool_tools_and_attach_work(
    workspace: Path,
) -> None:
    with sync.Pool(workspace, size=1) as pool:
        pool.ready()
        with pool.session() as box:
            box.persistent.run("mkdir -p src; cd src; export A=1")
            assert box.persistent.run("echo $A $PWD").stdout == "1 /workspace/src\n"
            tools = sync.ToolRegistry(box)
            assert tools.call("Bash", {"command": "pwd"}).output == "/workspace/src\n"
            assert (
                tools.call("BashOutput", {"bash_id": "nosuch"}).error
                == "Shell not found: nosuch"
            )
    with sync.Session(workspace, keep=True) as kept:
        kept.start("sleep 600")
        with sync.attach(kept.id) as again:
            assert [shell.command for shell in again.shells()] == ["sleep 600"]
        kept.stop()


def test_blocking_observers_see_everything_each(workspace: Path) -> None:
    with sync.Session(workspace) as box:
        shell = box.start("seq 5")
        for _ in range(2):
            assert (
                "".join(chunk.stdout for chunk in shell.observe()) == "1\n2\n3\n4\n5\n"
            )
        assert shell.observe((2, 0)).position == (2, 0)
