"""Commands of a persistent shell are judged with its present state, never with an earlier one."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar import PolicyDenied, Session


async def test_a_new_shell_is_not_judged_with_the_functions_of_the_last(
    place: Path,
) -> None:
    async with Session(place) as box:
        shell = box.persistent
        for end in ("exit", "exec true", "exec >&-", "kill -9 $$"):
            await shell.run("tool() { echo no; }; alias echo=:")
            assert (await shell.run("tool -- rm -rf /")).exit_code == 0, "the function"
            await shell.run(end)
            with pytest.raises(PolicyDenied):
                await shell.run("tool -- rm -rf /")


async def test_a_shell_that_ends_while_its_command_is_judged_is_judged_anew(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Session(place) as box:
        shell = box.persistent
        await shell.run("tool() { echo no; }")
        admit = box._judge.admit

        async def slow(*given: object, **facts: object) -> object:
            verdict = await admit(*given, **facts)  # type: ignore[arg-type]
            if shell._bash is not None:
                shell.kill()
                await shell._bash.process.ended()
            return verdict

        monkeypatch.setattr(box._judge, "admit", slow)
        with pytest.raises(PolicyDenied):
            await shell.run("tool -- rm -rf /")


async def test_a_cached_verdict_is_not_used_after_an_unread_script(place: Path) -> None:
    (place / "unread.sh").write_text(":")
    async with Session(place) as box:
        shell = box.persistent
        await shell.run("mkdir -p /tmp/build; cd /tmp/build")
        await shell.run(
            "echo /workspace/unread.sh"
        )  # sets the same $_ as below, so that the state looks unchanged
        await shell.run("rm -rf *")
        await shell.run("source /workspace/unread.sh")
        with pytest.raises(PolicyDenied):
            await shell.run("rm -rf *")


async def test_a_command_that_comes_again_in_the_same_state_is_not_judged_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Session(place) as box:
        for _ in range(
            2
        ):  # the first sets $_, so the second is judged in another state
            await box.persistent.run("echo again")
        admit, remembered = box._judge.admit, []

        async def noting(*given: object, **facts: object) -> object:
            remembered.append(facts["known"])
            return await admit(*given, **facts)  # type: ignore[arg-type]

        monkeypatch.setattr(box._judge, "admit", noting)
        await box.persistent.run("echo again")
        await box.persistent.run("echo again")
        assert None not in remembered


async def test_a_new_shell_recalls_no_verdict_of_the_last(place: Path) -> None:
    async with Session(place) as box:
        shell = box.persistent
        await shell.run("true")
        assert shell._shell_judge._verdicts
        shell._shell_judge.forget()
        assert not shell._shell_judge._verdicts


async def test_variables_are_unknown_after_an_unread_script_or_a_branch(
    place: Path,
) -> None:
    (place / "set.sh").write_text("D=/workspace")
    async with Session(place) as box:
        shell = box.persistent
        for doubt in ("source ./set.sh", "D=/workspace; false && D=/tmp/x"):
            await shell.run("D=/tmp/x; mkdir -p $D")
            await shell.run("rm -rf $D/*")
            await shell.run(doubt)
            with pytest.raises(PolicyDenied):
                await shell.run("rm -rf $D/*")
        assert (place / "set.sh").exists()
