"""A spec, translated into the requests that Docker and Podman understand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from belljar.engines.docker.create_body import create_body
from belljar.engines.spec import Image, Mount, SandboxSpec


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("NetworkMode", "none"),
        ("ReadonlyRootfs", True),
        ("Privileged", False),
        ("CapDrop", ["ALL"]),
        ("CapAdd", []),
        ("IpcMode", "private"),
        ("CgroupnsMode", "private"),
        ("Memory", 512 << 20),
        ("MemorySwap", 512 << 20),
        ("NanoCpus", 1_500_000_000),
        ("PidsLimit", 256),
        ("OomScoreAdj", 500),
        ("AutoRemove", True),
        ("Dns", ["127.0.0.1"]),
        ("LogConfig", {"Type": "none", "Config": {}}),
        ("RestartPolicy", {"Name": "no"}),
    ],
)
def test_the_protections_are_asked_for_in_docker_s_words(
    config: dict[str, Any], item: str, value: Any
) -> None:
    assert config[item] == value


def test_hard_limits_equal_soft_limits(config: dict[str, Any]) -> None:
    found = {item["Name"]: (item["Soft"], item["Hard"]) for item in config["Ulimits"]}
    assert found["core"] == (0, 0)
    assert all(soft == hard for soft, hard in found.values())


def test_every_bind_is_private_and_not_recursive(config: dict[str, Any]) -> None:
    binds = [mount for mount in config["Mounts"] if mount["Type"] == "bind"]
    assert binds
    assert all(
        each["BindOptions"] == {"Propagation": "rprivate", "NonRecursive": True}
        for each in binds
    )
    assert "Binds" not in config


def test_variables_of_the_image_that_were_dropped_are_named_bare(
    spec: SandboxSpec,
) -> None:
    body = create_body(
        dataclasses.replace(spec, image=Image("i", ("LD_PRELOAD=x", "HOME=/root")))
    )
    assert "LD_PRELOAD" in body["Env"]
    assert "HOME=/home/sandbox" in body["Env"]
    assert "HOME" not in body["Env"]


def test_the_engine_sets_up_no_network_where_we_bring_the_hosts_file(
    spec: SandboxSpec,
) -> None:
    assert create_body(spec)["NetworkDisabled"]
    assert not create_body(dataclasses.replace(spec, brings_hosts=False))[
        "NetworkDisabled"
    ]


def test_an_overlay_is_an_unnamed_volume_of_the_local_driver(spec: SandboxSpec) -> None:
    overlay = Mount(
        "overlay", "/workspace", "/w", read_only=False, upper="/u", work="/k"
    )
    [found] = create_body(dataclasses.replace(spec, mounts=(overlay,)))["HostConfig"][
        "Mounts"
    ]
    options = found["VolumeOptions"]["DriverConfig"]["Options"]
    assert options["o"] == "lowerdir=/w,upperdir=/u,workdir=/k,userxattr"
    assert "Source" not in found
