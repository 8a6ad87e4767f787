"""Prints what the package consists of, as CycloneDX JSON: `python sandbox-images/package/sbom.py`, or `make sbom`.

Packages and their hashes come from the lock file, so the list says what an installation by `make` or the Debian package
really contains. The init is named with the hash of its binary and the compiler that brought the C library.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "sandbox-images/setup/lock"
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", re.MULTILINE)


def document() -> dict[str, object]:
    version = re.search(
        r'__version__ = "(.+)"', (ROOT / "src/belljar/__init__.py").read_text()
    )
    assert version is not None
    parts = [*_packages((LOCKS / "run.txt").read_text()), *_inits()]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    ours = {
        "type": "application", "bom-ref": "belljar", "name": "belljar-sandbox", "version": version[1],
        "purl": f"pkg:pypi/belljar-sandbox@{version[1]}", "licenses": [{"license": {"id": "Apache-2.0"}}],
    }  # fmt: skip
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(digest[:32])}",
        "version": 1,
        "metadata": {"component": ours},
        "components": parts,
        "dependencies": [
            {"ref": "belljar", "dependsOn": [part["bom-ref"] for part in parts]}
        ],
    }


def _packages(lock: str) -> list[dict[str, object]]:
    """Each package with the hashes of its files for all machines."""
    entries = list(ENTRY.finditer(lock))
    ends = [entry.start() for entry in entries[1:]] + [len(lock)]
    return [
        _component(
            entry[1],
            entry[2],
            re.findall(r"sha256:([0-9a-f]{64})", lock[entry.end() : end]),
        )
        for entry, end in zip(entries, ends, strict=True)
    ]


def _component(name: str, version: str, hashes: list[str]) -> dict[str, object]:
    purl = f"pkg:pypi/{name}@{version}"
    files = [
        {
            "type": "distribution",
            "url": purl,
            "hashes": [{"alg": "SHA-256", "content": each}],
        }
        for each in hashes
    ]
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "externalReferences": files,
    }  # fmt: skip


def _inits() -> list[dict[str, object]]:
    """The compiled PID 1 of this environment; none if it was not built yet."""
    compiler = re.search(
        r"(?m)^ziglang==([^ \\]+)", (LOCKS / "compiler.txt").read_text()
    )
    found = sorted(Path(sys.prefix, "share/belljar").glob("belljar-[ic]*-*"))
    return [
        {
            "type": "file", "bom-ref": path.name, "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
            "description": f"static, with musl of ziglang {compiler[1] if compiler else 'unknown'}",
        }
        for path in found
    ]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(document(), indent=2))
