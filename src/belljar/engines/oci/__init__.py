"""The engine without a daemon: an OCI runtime (runc) on root file systems from our own image store.

May import: images, staged.overlay, workspace.idmap and what every engine may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from belljar.engines.oci.engine import OciEngine, find

__all__ = ["OciEngine", "find"]


def __getattr__(name: str) -> Any:
    """On first use: `rootless` is a program of its own that needs none of it."""
    if name not in __all__:
        raise AttributeError(name)
    from belljar.engines.oci import engine

    return getattr(engine, name)
