"""A snapshot of a sandbox with root inside holds what it changed of the root file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.oci.conftest import needs_runc
from tests.engines.oci.test_root import package, script

from belljar import Session
from belljar.errors import UsageError
from belljar.host import Host
from belljar.session import root_files  # noqa: F401 - what these tests are about

pytestmark = [pytest.mark.anyio, needs_runc]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(engine="oci", state=tmp_path / "state")
    yield found
    found.close()


async def test_an_installed_package_is_there_again(
    host: Host, root_workspace: Path
) -> None:
    options = {
        "root": True,
        "policy": "permissive",
        "approve": lambda verdict: True,
        "host": host,
    }
    async with Session(root_workspace, **options) as box:  # type: ignore[arg-type]
        package(root_workspace / "greeter.deb")
        done = await script(
            box,
            "dpkg -i greeter.deb && rm /usr/share/doc/bash -r && echo changed >> /etc/issue && mkdir -p /opt/a/b"
            " && ln -s /opt/a /opt/link && chmod 500 /opt/a/b && echo own > /root/own && echo t > /tmp/t",
        )
        assert done.exit_code == 0, done.output
        made = await box.snapshot("installed")
        assert made.left_out == ()
    async with Session(
        root_workspace, snapshot="installed", approve=lambda verdict: True, host=host
    ) as twin:
        assert twin.options.root
        found = await script(
            twin,
            "greet; dpkg -s greeter | grep Status; tail -1 /etc/issue; readlink /opt/link; stat -c %a /opt/a/b;"
            " cat /root/own /tmp/t; test -e /usr/share/doc/bash || echo gone; id -u greeter >/dev/null && echo user",
        )
        assert found.stdout == (
            "installed\nStatus: install ok installed\nchanged\n/opt/a\n500\nown\nt\ngone\nuser\n"
        ), found.output
    with pytest.raises(UsageError, match="root=True"):
        await Session(
            root_workspace, snapshot="installed", root=False, host=host
        ).open()
