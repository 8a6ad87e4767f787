"""Quotas: how much a tenant or a key may use. `None` is no bound.

A session counts for its key, all keys above it, and the tenant. Each of them has its own bounds; the narrowest wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

COUNTS = ("sessions", "memory", "cpus", "disk", "creates_per_minute", "lifetime")
NETWORKS = ("none", "allow", "full")
POLICIES = ["default", "strict", "ci"]
LIFETIME = 86400
UNBOUND: dict[str, Any] = dict.fromkeys((*COUNTS, "policies", "network"))
NEW_TENANT: dict[str, Any] = {
    **UNBOUND,
    "sessions": 20,
    "creates_per_minute": 60,
    "lifetime": LIFETIME,
    "policies": POLICIES,
    "network": "allow",
}
STREAMS_OF_A_KEY = 64
STREAMS_OF_A_COMMAND = 50

Quota = Mapping[str, Any]


def narrowest(quotas: Iterable[Quota]) -> dict[str, Any]:
    """The bounds of all of them together."""
    bounds = dict(UNBOUND)
    for quota in quotas:
        for name, value in quota.items():
            if value is not None:
                bounds[name] = (
                    value
                    if bounds[name] is None
                    else _narrower(name, bounds[name], value)
                )
    return bounds


def _narrower(name: str, one: Any, other: Any) -> Any:
    if name == "policies":
        return [policy for policy in one if policy in other]
    if name == "network":
        return min(one, other, key=NETWORKS.index)
    return min(one, other)


def wider(name: str, value: Any, bound: Any) -> bool:
    """Whether `value` allows more than `bound`."""
    if bound is None:
        return False
    if value is None:
        return True
    if name == "policies":
        return not set(value) <= set(bound)
    if name == "network":
        return NETWORKS.index(value) > NETWORKS.index(bound)
    return bool(value > bound)
