"""The engine without a daemon: an OCI runtime (runc) on root file systems from our own image store.

May import: images, workspace.idmap and what every engine may.
"""

from __future__ import annotations

from belljar.engines.oci.engine import OciEngine, find

__all__ = ["OciEngine", "find"]
