"""What our images promise to contain, tried inside. An image that is not built on this machine is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar import sync
from belljar.engines.docker.engine import DockerEngine
from belljar.images import catalog

PACKAGE = """mkdir -p thing && touch thing/__init__.py && printf '%s\\n' \\
    'from setuptools import setup; setup(name="thing", version="1", packages=["thing"])' > setup.py"""
TRIES = {
    "base": {
        "python -c 'print(6 * 7)'": "42",
        "vim --version | head -1; vi --version | head -1": "VIM",
        "htop --version; top -v; less --version | head -1": "htop",
        "git --version; make --version; rg --version; jq --version": "jq",
    },
    "python": {
        "pip --version && uv --version && pytest --version": "pytest",
        f"{PACKAGE}; pip install -q --no-index --no-build-isolation .; cd /; python -c 'import thing; print(thing)'":
            ".local",
        "uv venv -q --offline /tmp/v && /tmp/v/bin/python -c 'print(6 * 7)'": "42",
        "python -m venv /tmp/w && /tmp/w/bin/pip --version": "/tmp/w",
        "echo 'def test(): pass' > test_it.py; pytest -q": "1 passed",
    },
    "node": {
        "node -p 'Number(process.versions.node.split(`.`)[0]) >= 22'": "true",
        "npm --version && npx --version": "10.",
        "npm init -y > /dev/null && npm install -g . && ls ~/.local/lib/node_modules": "workspace",
    },
    "dev": {
        "python --version && node --version && npm --version && pip --version && uv --version": "Python",
        "echo 'int main(void) { return 42; }' > x.c && gcc x.c && ./a.out; echo $?": "42",
        "sqlite3 :memory: 'select 6 * 7'": "42",
        "locale -a": "en_US.utf8",
        "vim --version | grep -c +syntax": "1",
        "cmake --version && shellcheck --version && ninja --version": "cmake",
    },
}  # fmt: skip


@pytest.fixture
def built(engine: DockerEngine, image: str) -> str:
    if image != "base" and engine.image(catalog.reference(image)) is None:
        pytest.skip(
            f"the image {image} is not built here: belljar images build {image}"
        )
    return image


@pytest.mark.parametrize("image", TRIES)
def test_an_image_has_what_it_promises(workspace: Path, built: str) -> None:
    with sync.Session(workspace, image=built) as box:
        for command, expected in TRIES[built].items():
            result = box.run(command, timeout=60)
            assert expected in result.stdout, (command, result.output)


@pytest.mark.parametrize("image", ["dev"])
def test_gdb_and_strace_work_with_debug_and_not_without(
    workspace: Path, built: str
) -> None:
    command = "strace -c -o /dev/stdout true | tail -1; gdb -batch -ex run -ex bt /bin/true 2>&1 | tail -2"
    for debug in (True, False):
        with sync.Session(workspace, image=built, debug=debug) as box:
            said = box.run(command, timeout=60).output
        assert ("total" in said, "exited normally" in said) == (debug, debug), said
