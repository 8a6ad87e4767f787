"""Paths that a sandbox, an image or a workspace can influence are opened beneath a descriptor (workspace/beneath.py).

This file lists each module that opens, makes, renames or removes something by a path, and why its paths are safe.
A new module must use `Folder`, or be listed with the reason why no one else can choose where its paths lead.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import belljar

SOURCE = Path(belljar.__file__).parent

OF_OS = set(
    """open rename replace unlink remove rmdir mkdir makedirs symlink link chmod chown lchown readlink listdir scandir
    walk truncate utime mkfifo mknod getxattr setxattr listxattr removexattr""".split()  # noqa: SIM905
)
OF_SHUTIL = {"rmtree", "copy", "copy2", "copyfile", "copytree", "move"}
OF_PATH = set(
    "read_text read_bytes write_text write_bytes symlink_to hardlink_to iterdir rglob touch".split()  # noqa: SIM905
)  # without `open`, `replace` and others, which are not only Path's

OWN = "a directory of ours that only we can enter"
KERNEL = "the kernel's own files: /proc, /sys"
OPERATOR = "a file that the operator or the package names"
DESCRIPTORS = "relative to descriptors, links never followed"
NOTED = "`touch` of a session notes that it was used"
# By module, or by folder if the whole folder has nothing to do with the workspace.
REASONS = {
    "adapters/boxes.py": "a workspace that it made, removed without following links; a file that the operator names",
    "adapters/harbor.py": "the Dockerfile of the task that the operator names",
    "adapters/openhands.py": "copies in a directory that only we can enter; what the caller names",
    "ancestry.py": "what it looks at is what it judges",
    "audit/": OWN,
    "doctor/": KERNEL,
    "enforcement.py": OPERATOR,
    "engines/docker/": OPERATOR,
    "engines/kubernetes/init_image.py": OPERATOR,
    "engines/kubernetes/instance.py": OWN,
    "engines/kernel_facts.py": KERNEL,
    "engines/oci/": OWN,
    "engines/podman/": OWN,
    "engines/seccomp.py": OPERATOR,
    "images/archive.py": DESCRIPTORS,
    "images/building.py": OWN,
    "images/buildah.py": OWN,
    "images/catalog.py": OPERATOR,
    "images/compression.py": OPERATOR,
    "images/context.py": DESCRIPTORS,
    "images/exporting.py": OWN,
    "images/importing.py": OPERATOR,
    "images/pack.py": DESCRIPTORS,
    "images/store.py": OWN,
    "images/unpack.py": DESCRIPTORS,
    "limits.py": KERNEL,
    "link/transport.py": KERNEL,
    "network/authority.py": OPERATOR,
    "policy/": OPERATOR,
    "resources.py": OWN,
    "sandbox/caches.py": OWN,
    "sandbox/cgroup.py": KERNEL,
    "sandbox/census.py": KERNEL,
    "sandbox/extras.py": OWN,
    "sandbox/init_file.py": OWN,
    "sandbox/launch.py": OWN,
    "sandbox/pausing.py": OWN,
    "sandbox/listening.py": KERNEL,
    "sandbox/quota.py": OWN,
    "sandbox/rundir.py": OWN,
    "sandbox/scratch.py": OWN,
    "session/bash_channel.py": OWN,
    "session/host_paths.py": "a file of the host that the caller uploads",
    "session/pool.py": KERNEL,
    "session/root_files.py": OWN,
    "session/scratch_copies.py": OWN,
    "session/snapshot.py": OWN,
    "session/standstill.py": KERNEL,
    "staged/area.py": OWN,
    "staged/copying.py": DESCRIPTORS,
    "staged/layers.py": KERNEL,
    "staged/overlay.py": OWN,
    "staged/swap.py": KERNEL,
    "surfaces/cli/afterwards.py": "/dev/null",
    "surfaces/cli/artifacts.py": "whether the place that the caller names is free; it is filled beneath",
    "surfaces/cli/ci_jobs.py": OPERATOR,
    "surfaces/cli/ci_report.py": "the page of the job that its runner names",
    "surfaces/cli/completion.py": OPERATOR,
    "surfaces/cli/conformance_commands.py": "a report that the caller names",
    "surfaces/cli/editing.py": OWN,
    "surfaces/cli/far.py": "the file of the user's own key; workspaces are packed beneath",
    "surfaces/cli/examples.py": OPERATOR,
    "surfaces/cli/git_author.py": "the person's own git settings, which only they choose",
    "surfaces/cli/policy_score.py": "files of commands that the caller names",
    "surfaces/cli/console.py": "the caller's own terminal",
    "surfaces/cli/arguments.py": "a file of variables that the caller names",
    "surfaces/cli/prompt.py": OWN,
    "surfaces/cli/setup_user.py": "root's own files in /etc and /var/lib",
    "surfaces/http/dashboard/assets.py": OPERATOR,
    "surfaces/http/e2b/processes.py": NOTED,
    "surfaces/http/log.py": OWN,
    "surfaces/http/operating.py": OPERATOR,
    "surfaces/http/routes.py": NOTED,
    "surfaces/http/serve.py": OWN,
    "surfaces/http/service.py": OWN,
    "surfaces/http/warm.py": "a workspace in the state directory, removed without following links",
    "surfaces/http/sessions.py": "a workspace in the state directory, removed without following links",
    "surfaces/local/": OWN,
    "surfaces/terminal/host.py": KERNEL,
    "workspace/accounts.py": OWN,
    "runs_later/git_settings.py": OPERATOR,
    "runs_later/table.py": OWN,
    "workspace/beneath.py": DESCRIPTORS,
    "runs_later/view.py": DESCRIPTORS,
    "workspace/idmap.py": KERNEL,
    "tables.py": OWN,
    "user_namespace.py": KERNEL,
    "workspace/pinned.py": "the workspace as the caller names it, followed once",
    "workspace/uids.py": OWN,
}


def opens_by_path(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    module = function.value.id if isinstance(function.value, ast.Name) else ""
    known = {"os": OF_OS, "shutil": OF_SHUTIL}.get(module, OF_PATH)
    return function.attr in known


@cache
def modules() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        ]
        if lines := sorted(call.lineno for call in calls if opens_by_path(call)):
            found[path.relative_to(SOURCE).as_posix()] = lines
    return found


def test_no_other_module_opens_a_path_by_itself() -> None:
    unnamed = {
        name: lines
        for name, lines in modules().items()
        if not name.startswith(tuple(REASONS))
    }
    assert not unnamed, (
        "use belljar.workspace.beneath.Folder, or say here why nobody else can choose these paths"
    )


def test_every_module_with_a_stated_reason_exists() -> None:
    assert [
        reason
        for reason in REASONS
        if not any(name.startswith(reason) for name in modules())
    ] == []


def test_modules_that_read_the_workspace_open_beneath_its_descriptor() -> None:
    """They read the workspace while commands change it, so they may not use paths at all."""
    for name in (
        "workspace/cwd.py",
        "runs_later/watch.py",
        "workspace/survey.py",
        "surfaces/cli/ci_report.py",
    ):
        text = (SOURCE / name).read_text()
        assert "belljar.workspace.beneath" in text, name
        assert "os.open(" not in text, name
