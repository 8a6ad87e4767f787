"""Each reason why a command did not start is an error of its own kind."""

import pytest
from tests.link.conftest import Pair, spawned

from belljar.errors import (
    CommandError,
    CommandNotExecutable,
    CommandNotFound,
    WorkingDirectoryError,
)
from belljar.link import frames
from belljar.link.frames import From


@pytest.mark.parametrize(
    ("code", "stage", "kind"),
    [
        (2, frames.Stage.CWD, WorkingDirectoryError),
        (2, frames.Stage.EXEC, CommandNotFound),
        (13, frames.Stage.EXEC, CommandNotExecutable),
        (7, frames.Stage.EXEC, CommandError),
        (12, frames.Stage.RESOURCES, CommandError),
    ],
)
async def test_a_failed_start_has_a_typed_error(
    pair: Pair, code: int, stage: int, kind: type[CommandError]
) -> None:
    process = spawned(pair)
    pair.say(From.SPAWN_ERROR, process.id, frames.u32(code, stage) + b"why")
    with pytest.raises(CommandError) as failed:
        await process.started()
    assert type(failed.value) is kind
