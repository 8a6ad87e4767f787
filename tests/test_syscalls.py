"""A failed system call reports its reason and its subject."""

import os
import threading

import pytest

from belljar import syscalls


def test_a_failure_is_an_oserror_with_its_path() -> None:
    with pytest.raises(FileNotFoundError) as failed:
        syscalls.mount("none", "/no/such/place", "tmpfs", 0)
    assert failed.value.filename == "/no/such/place"


def test_a_syscall_returns_its_answer() -> None:
    GETPID = {"x86_64": 39, "aarch64": 172}[os.uname().machine]
    assert syscalls.syscall(GETPID) == os.getpid()


def test_in_new_thread_returns_the_result_or_raises() -> None:
    assert (
        syscalls.in_new_thread(lambda: threading.current_thread().name, "of-its-own")
        == "of-its-own"
    )
    with pytest.raises(ZeroDivisionError):
        syscalls.in_new_thread(lambda: 1 // 0, "of-its-own")


def test_a_descriptor_is_closed_after_its_block_even_if_that_fails() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        syscalls.closing(os.open("/", os.O_PATH)) as descriptor,
    ):
        os.fstat(descriptor + 0 * (1 // 0))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
