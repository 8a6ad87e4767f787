"""The time and memory that one call of a lasting shell used."""

from __future__ import annotations

from tests.attacks.test_persistent_shell import shell as shell

from belljar.session.persistent_shell import PersistentShell


async def test_a_call_reports_its_time_and_memory(shell: PersistentShell) -> None:
    await shell.run("true")
    busy = await shell.run("for ((i = 0; i < 300000; i++)); do :; done", timeout=60)
    large = await shell.run(
        "python3 -c 'x = bytearray(150 << 20); import time; time.sleep(1)'", timeout=60
    )
    small = await shell.run("true")
    assert busy.cpu_time > 0
    assert large.peak_memory > 150 << 20
    assert small.cpu_time < busy.cpu_time
    assert small.peak_memory < 50 << 20
    ended = await shell.run(
        "for ((i = 0; i < 300000; i++)); do :; done; exit 3", timeout=60
    )
    assert ended.cpu_time > 0
    assert ended.peak_memory > 0


async def test_a_shell_stopped_by_a_signal_is_ended_with_a_message(
    shell: PersistentShell,
) -> None:
    await shell.run("cd /tmp")
    stopped = await shell.run("echo before; kill -STOP $$; echo after")
    assert stopped.cause == "killed"
    assert stopped.stdout == "before\n"
    assert "a signal had stopped it" in stopped.stderr
    assert stopped.restarted
    assert (await shell.run("pwd")).stdout == "/tmp\n"


async def test_a_stopped_shell_may_be_continued(shell: PersistentShell) -> None:
    result = await shell.run("(sleep 0.2; kill -CONT $$) & kill -STOP $$; echo after")
    assert result.stdout == "after\n"
