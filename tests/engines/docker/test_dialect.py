"""Options that Docker and other engines write differently."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from belljar.engines.docker.create_body import create_body
from belljar.engines.spec import SandboxSpec


def test_the_seccomp_profile_and_no_new_privileges_are_asked_for(
    config: dict[str, Any],
) -> None:
    first, second = config["SecurityOpt"]
    assert first == "no-new-privileges"
    assert (
        json.loads(second.removeprefix("seccomp="))["defaultAction"] == "SCMP_ACT_ERRNO"
    )


def test_a_label_for_selinux_and_a_runtime_are_passed_on(spec: SandboxSpec) -> None:
    config = create_body(
        dataclasses.replace(spec, security_label="type:x_t", runtime="runsc")
    )["HostConfig"]
    assert "label=type:x_t" in config["SecurityOpt"]
    assert config["Runtime"] == "runsc"


def test_memory_file_systems_have_sizes_owners_and_few_files(
    config: dict[str, Any], spec: SandboxSpec
) -> None:
    home = config["Tmpfs"]["/home/sandbox"].split(",")
    assert {
        "nosuid",
        "nodev",
        "exec",
        f"size={64 << 20}",
        f"uid={spec.user.uid}",
        "mode=700",
    } <= set(home)
    assert any(word.startswith("nr_inodes=") for word in home)
    assert "noexec" in config["Tmpfs"]["/dev/shm"].split(",")
