"""What is known of a shell is known of that one: the next has other functions, and is judged with those."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar import PolicyDenied, Session


async def test_the_functions_of_a_shell_that_ended_are_not_what_the_next_is_judged_with(place: Path) -> None:
    async with Session(place) as box:
        shell = box.persistent
        for end in ("exit", "exec true", "exec >&-", "kill -9 $$"):
            await shell.run("rm() { echo no; }; alias echo=:")
            assert (await shell.run("rm -rf /")).exit_code == 0, "the function"
            await shell.run(end)
            with pytest.raises(PolicyDenied):
                await shell.run("rm -rf /")


async def test_a_shell_that_ends_while_its_command_is_judged_is_judged_anew(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Session(place) as box:
        shell = box.persistent
        await shell.run("rm() { echo no; }")
        admit = box.judge.admit

        async def slow(*given: object, **facts: object) -> object:
            verdict = await admit(*given, **facts)  # type: ignore[arg-type]
            if shell._bash is not None:
                shell.kill()
                await shell._bash.execution.ended()
            return verdict

        monkeypatch.setattr(box.judge, "admit", slow)
        with pytest.raises(PolicyDenied):
            await shell.run("rm -rf /")
