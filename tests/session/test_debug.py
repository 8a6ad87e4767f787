"""With `debug` commands may trace their own processes, as gdb and strace do; otherwise none may."""

from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar import Session
from belljar.errors import UsageError

# Traces its child from exec on and counts its stops, as strace does.
TRACER = """\
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if not child:
    if libc.ptrace(0, 0, None, None):
        os._exit(3)
    os.execv("/bin/true", ["true"])
stops = 0
while True:
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        break
    stops += 1
    libc.ptrace(24, child, None, None)
print(os.WEXITSTATUS(status), stops > 4)
"""


@pytest.mark.parametrize(("debug", "printed"), [(True, "0 True"), (False, "3 False")])
async def test_a_command_traces_its_child_only_with_debug(
    place: Path, base_image: str, debug: bool, printed: str
) -> None:
    async with Session(place, debug=debug) as box:
        await box.files.write("tracer.py", TRACER)
        assert (
            await box.run("python3 tracer.py", timeout=60)
        ).stdout.strip() == printed


def test_the_command_line_has_a_debug_option(place: Path, base_image: str) -> None:
    (place / "tracer.py").write_text(TRACER)
    done = belljar("run", "--debug", "--workspace", str(place), "python3 tracer.py")
    assert (done.stdout.strip(), done.status) == ("0 True", 0)


def test_debug_and_root_inside_exclude_each_other(place: Path) -> None:
    with pytest.raises(UsageError, match="leave one of them out"):
        Session(place, root=True, debug=True)
