"""Kubernetes: one Pod per sandbox, commands over one exec stream (README.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from belljar import resources
from belljar.errors import EngineUnavailable

if TYPE_CHECKING:
    from belljar.engines.kubernetes.engine import KubernetesEngine


def find(runtime: str = "", state: Path | None = None) -> KubernetesEngine:
    """The cluster of the current context, or the one that the settings name. `runtime`: a RuntimeClass."""
    try:
        from belljar.engines.kubernetes.engine import KubernetesEngine
    except ImportError as error:
        raise EngineUnavailable(
            f"the engine kubernetes needs more packages ({error.name}): pip install 'belljar-sandbox[kubernetes]'"
        ) from error
    from belljar.engines.kubernetes.settings import from_environment

    return KubernetesEngine(from_environment(runtime), state or resources.state_dir())
