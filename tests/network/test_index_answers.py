"""Answers of a package index are trusted within limits."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest
from tests.network.conftest import Index

from belljar.network import index_answers
from belljar.network.index_answers import ask_index

pytestmark = pytest.mark.usefixtures("no_settings")


def test_a_public_answer_does_not_come_from_a_private_address(index: str) -> None:
    assert ask_index(f"{index}/simple/pip/", public=False)[1]
    assert ask_index(f"{index}/simple/pip/", public=True) == ("", "")
    assert ask_index(
        f"{index.replace('127.0.0.1', 'localhost')}/simple/pip/", public=True
    ) == ("", "")


def test_no_redirect_leads_to_another_protocol_past_the_check(
    monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    """urllib follows redirects to ftp, and dials without our check."""
    with socket.create_server(("127.0.0.1", 0)) as private:
        private.settimeout(0.5)
        monkeypatch.setattr(
            Index, "leads_to", f"ftp://127.0.0.1:{private.getsockname()[1]}/x"
        )
        monkeypatch.setattr(
            index_answers, "refusal", lambda _: None
        )  # pretend that the index is public
        for public in (True, False):
            assert ask_index(f"{index}/leads", public=public) == ("", "")
        with pytest.raises(TimeoutError):
            private.accept()


def test_an_index_that_answers_byte_by_byte_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index_answers, "refusal", lambda _: None)
    monkeypatch.setattr(index_answers, "SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as slow:
        threading.Thread(target=_drip, args=(slow,), daemon=True).start()
        assert (
            ask_index(f"http://127.0.0.1:{slow.getsockname()[1]}/", public=True)[1]
            == ""
        )


def _drip(server: socket.socket) -> None:
    line, _ = server.accept()
    with line, suppress(OSError):
        line.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            line.sendall(b"x")
            time.sleep(0.05)
