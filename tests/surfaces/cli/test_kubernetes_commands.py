"""`belljar kubernetes`: what a cluster needs, printed; no cluster is asked."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from belljar.surfaces.cli.main import main


def test_manifests_are_yaml_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "kubernetes",
                "manifests",
                "--namespace",
                "agents",
                "--runtime",
                "nonet",
                "--images",
                "r/",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    notes, _, objects = text.partition("apiVersion: ")
    assert "RuntimeClass nonet" in notes
    assert objects.startswith("v1\nkind: Namespace\n")
    assert "\n---\n" in text
    assert "image: r/belljar/serve:" in text
    assert "value: nonet" in text


def test_without_the_service_only_rights_and_walls_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["kubernetes", "manifests", "--no-service", "--json"]) == 0
    kinds = [each["kind"] for each in json.loads(capsys.readouterr().out)]
    assert kinds == [
        "Namespace",
        "PriorityClass",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "NetworkPolicy",
        "ResourceQuota",
    ]


def test_the_init_s_image_is_written_to_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "init.tar"
    assert (
        main(
            ["kubernetes", "image", "--images", "r.example.com/", str(target), "--json"]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(target)
    assert told["image"].startswith("r.example.com/belljar/init:")
    assert tarfile.is_tarfile(target)


@pytest.mark.parametrize("size", ["0", "1001"])
def test_a_number_of_waiting_pods_that_makes_no_sense_is_refused(
    size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubernetes", "warm", size]) == 2
    assert "must be from 1 to 1000" in capsys.readouterr().err
