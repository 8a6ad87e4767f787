"""What a result reports after its command has ended."""

from tests.session.test_hints import box as box

from belljar import Session


async def test_the_persistent_shell_names_a_child_that_ran_out_of_memory(
    box: Session,
) -> None:
    result = await box.persistent.run("python3 -c 'b = bytearray(500 << 20)'")
    assert (result.cause, result.exit_code, result.oom_kills) == (
        "out_of_memory",
        137,
        1,
    )
    assert any("memory='2g'" in hint for hint in result.hints)
    assert (await box.persistent.run("false")).hints == ()
    result = await box.persistent.run("python3 -c 'b = bytearray(500 << 20)'; true")
    assert (result.cause, result.oom_kills) == ("exited", 1), (
        "told in its own call, not in the next"
    )
    assert (await box.persistent.run("false")).oom_kills == 0
