"""Writable space on disk: a small file system for /tmp, home and a writable root of one sandbox.

It is an ext4 in a sparse file on a loop device. Its size is fixed, so a full one is ENOSPC inside and never a full disk
outside: a sandbox gets one only if the disk could hold all volumes of running sandboxes, and a reserve.

The file has no name, the loop device releases it with the last mount, and the mount on the host (`<run dir>/scratch`)
is removed as soon as the sandbox has its own. So nothing is left when a sandbox ends. A process killed in between
leaves a mount, which the reaper removes.

Copying an empty file system is faster than making one, so there is a template for each size.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from belljar import resources
from belljar.engines.kernel_facts import number, read
from belljar.errors import EngineError
from belljar.records import record
from belljar.staged.copying import copy_data
from belljar.syscalls import MS_NOATIME, MS_NODEV, MS_NOSUID, closing, mount
from belljar.workspace.pinned import release_mount

MOUNT_NAME = "scratch"
PROMISE = "scratch.bytes"
"""How much this sandbox may take."""
DEFAULT_BYTES = 4 << 30
RESERVE = 2 << 30
"""Bytes of the disk that always stay free."""
ATTEMPTS = 20
_LOOP_CONFIGURE, _LOOP_CTL_GET_FREE = 0x4C0A, 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
# struct loop_config: fd, block size, struct loop_info64 (its flags at 52), reserved.
_LOOP_CONFIG = struct.Struct("=II 52x I 176x 64x")
# It never grows and is never repaired. Without what these need, there are 120 KB to copy instead of 2 MB.
_FEATURES = "^has_journal,^resize_inode,sparse_super2"
_MKFS = (
    "-q",
    "-F",
    "-m",
    "0",
    "-O",
    _FEATURES,
    "-E",
    "lazy_itable_init=1,nodiscard,num_backup_sb=0",
)


class NoScratch(EngineError):
    """There can be no volume on disk; the message says why."""


@record
class Scratch:
    path: Path

    def directory(self, name: str, mode: int, owner: tuple[int, int]) -> str:
        """A directory in it; `owner`: uid and gid on the host."""
        path = self.path / name
        path.mkdir(exist_ok=True)
        os.chown(path, *owner)
        os.chmod(path, mode)
        return str(path)


@contextmanager
def mounted(
    run_dir: Path, size: int | None, state: Path | None = None
) -> Iterator[Scratch | None]:
    """A new volume, mounted while this is open. Without a `size` it is None if there can be none. `state`: its owner's
    state directory, else the user's."""
    target = run_dir / MOUNT_NAME
    try:
        _mount_new(
            run_dir, target, size or DEFAULT_BYTES, state or resources.state_dir()
        )
    except NoScratch:
        if size is not None:
            raise
        yield None
        return
    try:
        yield Scratch(target)
    finally:
        release(run_dir)


def release(run_dir: Path) -> None:
    """Unmount it, ours or that of a process that died."""
    with suppress(OSError):
        release_mount(run_dir / MOUNT_NAME)


def possible() -> str | None:
    """Why there can be no volume on this machine, or None."""
    if os.geteuid() != 0:
        return "only root can mount a volume"
    if _mkfs() is None:
        return "mkfs.ext4 is not installed (the package e2fsprogs)"
    if not os.path.exists("/dev/loop-control"):
        return "this machine has no loop devices"
    return None


def _mount_new(run_dir: Path, target: Path, size: int, state: Path) -> None:
    if reason := possible():
        raise NoScratch(
            f"no scratch volume on disk: {reason}; use --tmp and --home, which are in memory"
        )
    where = state / "scratch"
    try:
        with room(run_dir.parent, size, state):
            (run_dir / PROMISE).write_text(str(size))
        with closing(_copy(_template(where, size), where)) as file:
            target.mkdir(mode=0o711, exist_ok=True)
            mount_device(attach(file), target, "discard,noinit_itable,nobarrier")
    except (OSError, subprocess.SubprocessError) as error:
        (run_dir / PROMISE).unlink(missing_ok=True)
        raise NoScratch(f"no scratch volume on disk: {error}") from error


@contextmanager
def room(run_root: Path, size: int, state: Path) -> Iterator[None]:
    """Holds a lock while this is open. NoScratch if so much does not fit beside all that was promised."""
    (state / "scratch").mkdir(mode=0o700, exist_ok=True)
    with resources.locked(state / "scratch" / "lock"):
        caches = [path.stat() for path in state.glob("caches/*/*.ext4")]
        promised = sum(
            number(read(str(path))) or 0 for path in run_root.glob(f"*/{PROMISE}")
        )
        promised += sum(
            max(0, cache.st_size - cache.st_blocks * 512) for cache in caches
        )
        free = shutil.disk_usage(state).free
        if free - promised - size < RESERVE:
            raise NoScratch(
                f"no scratch volume on disk: {size >> 20} MiB do not fit beside what other sandboxes may take "
                f"({promised >> 20} MiB) and a reserve, of {free >> 20} MiB free"
            )
        yield


def _template(where: Path, size: int) -> Path:
    template = where / f"small-ext4-{size}"
    if not template.exists():
        import tempfile  # once for each size

        descriptor, made = tempfile.mkstemp(dir=where)
        os.ftruncate(descriptor, size)
        os.close(descriptor)
        make_file_system(made, _MKFS)
        os.rename(made, template)
    return template


def make_file_system(file: str, options: Sequence[str]) -> None:
    words = [_mkfs() or "mkfs.ext4", *options, file]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def _copy(template: Path, where: Path) -> int:
    """A sparse copy without a name."""
    with closing(os.open(template, os.O_RDONLY | os.O_CLOEXEC)) as source:
        target = os.open(where, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
        try:
            copy_data(source, target)
        except BaseException:
            os.close(target)
            raise
    return target


def attach(file: int) -> int:
    """An open loop device for the file. It releases the file once nobody has the device open or mounted."""
    for _ in range(ATTEMPTS):
        with open("/dev/loop-control", "rb") as control:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
        device = os.open(f"/dev/loop{number}", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(
                device, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(file, 0, _LO_FLAGS_AUTOCLEAR)
            )
            return device
        except OSError as error:
            os.close(device)
            if error.errno != errno.EBUSY:  # another process took it first
                raise
    raise NoScratch("no scratch volume on disk: no loop device is free")


def mount_device(device: int, target: Path, options: str) -> None:
    """Mount the device, and close its descriptor."""
    with closing(device):
        path = os.readlink(f"/proc/self/fd/{device}")
        mount(path, target, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, options)


def _mkfs() -> str | None:
    """An ordinary user's PATH may lack /usr/sbin."""
    return shutil.which("mkfs.ext4") or shutil.which(
        "mkfs.ext4", path="/usr/sbin:/sbin"
    )
