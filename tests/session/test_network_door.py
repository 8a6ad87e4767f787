"""The door of a session: its relay and its port."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar import Allow, Session
from belljar.errors import ProtectionMissing
from belljar.network.client_settings import PORT
from belljar.session.network_door import NetworkDoor

LISTENER = f"""
import socket
taken = socket.create_server(("127.0.0.1", {PORT}))
print("up", flush=True)
taken.accept()
"""


async def test_a_door_whose_port_is_taken_does_not_open(base_image: str, workspace: Path) -> None:
    """Whoever listens there would be taken for the proxy."""
    async with Session(workspace) as box:
        await box.files.write("listen.py", LISTENER)
        shell = await box.start("python3 listen.py")
        while "up" not in (await shell.read(offset=0, wait=5)).stdout:
            pass
        with pytest.raises(ProtectionMissing, match="could not be opened"):
            await NetworkDoor(box.init_tools, lambda _: None).open(Allow("api.test"))
