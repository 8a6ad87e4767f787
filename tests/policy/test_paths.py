"""Path classes."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belljar.policy.marks import ANY, ATOM, BRACKET, STAR, UNKNOWN
from belljar.policy.paths import classify, could_match, resolve

CASES = {
    "/": "root",
    "/etc": "system",
    "/etc/hosts": "system",
    "/usr/bin/ls": "system",
    "/workspace": "workspace_root",
    "/workspace/.git": "workspace_root",
    "/workspace/src/a.py": "workspace",
    "/workspace/.git/hooks/pre-commit": "exec_hook",
    "/tmp/x": "scratch",
    "/var/tmp/x": "scratch",
    "/dev/null": "scratch",
    "/dev/sda": "device",
    "/proc/cpuinfo": "kernel",
    "/sys/kernel": "kernel",
    "/home/sandbox": "home",
    "/home/other/x": "home",
    "/root": "home",
    "/home/sandbox/.bashrc": "exec_hook",
    "/home/sandbox/.ssh/id_rsa": "secret",
    "/home/sandbox/.ssh/id_rsa.pub": "home",
    "/etc/shadow": "secret",
    "/var/run/docker.sock": "kernel",
    f"/{STAR}": "root",
    f"/usr/{STAR}": "system",
    f"/workspace/{STAR}": "workspace_root",
    f"/workspace/{STAR}.pyc": "workspace",
    f"/{ANY}{ANY}{ANY}/sh{ANY}dow": "secret",
    f"/etc/{BRACKET}s]hadow": "secret",
    f"/etc/{BRACKET}!x]hadow": "secret",
    f"/etc/{BRACKET}^x]hadow": "secret",
    f"/etc/{BRACKET}{BRACKET}:lower:]]hadow": "secret",
    f"/etc/s{BRACKET}]h]adow": "secret",
    f"/etc/{BRACKET}x]hadow": "system",
    f"/workspace/{BRACKET}{BRACKET}:alnum:]]{STAR}": "workspace_root",
    f"/tmp/{ATOM}": "scratch",
    f"/workspace/{UNKNOWN}": "workspace",
    f"/{UNKNOWN}": "unknown",
}


@pytest.mark.parametrize(
    ("path", "kind"), CASES.items(), ids=[repr(path) for path in CASES]
)
def test_a_path_is_put_into_its_class(path: str, kind: str) -> None:
    assert classify(path)[0] == kind


@pytest.mark.parametrize(
    ("path", "full"),
    [
        ("..", "/"),
        ("a/../b", "/workspace/b"),
        ("//etc//./x/", "/etc/x"),
        ("~", "/home/sandbox"),
        ("~root/x", "/root/x"),
    ],
)
def test_paths_are_resolved(path: str, full: str) -> None:
    assert resolve(path, "/workspace") == full


def test_links_are_followed_except_for_the_last_when_the_link_is_meant() -> None:
    links = {"/workspace/l": "/"}
    assert resolve("l/etc", "/workspace", links) == "/etc"
    assert resolve("l", "/workspace", links) == "/"
    assert resolve("l", "/workspace", links, last=False) == "/workspace/l"


@given(st.text("ab/*", max_size=9), st.text("ab/", max_size=9))
def test_a_star_matches_as_in_bash(pattern: str, path: str) -> None:
    """The expected result matches each path component with Python's fnmatch."""
    parts, shapes = path.split("/"), pattern.split("/")
    matched = len(parts) == len(shapes) and all(map(fnmatch.fnmatchcase, parts, shapes))
    assert could_match(pattern.replace("*", STAR), path) == matched


@pytest.mark.parametrize("star", [STAR, UNKNOWN])
def test_many_stars_are_matched_in_bounded_time(star: str) -> None:
    """Trying every position for every star would practically never end."""
    assert not could_match(f"/tmp/{f'{star}a' * 12}b", "/tmp/" + "a" * 250)
    for crowd in (12, 150):
        assert could_match(f"/tmp/{f'{star}a' * crowd}", "/tmp/" + "a" * 250)
