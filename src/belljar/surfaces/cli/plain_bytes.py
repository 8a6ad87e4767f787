"""Bytes in a JSON document: as text, and where they are no UTF-8, also as base64 so that nothing is lost."""

from __future__ import annotations

from base64 import b64encode


def encoded(**streams: bytes) -> dict[str, str]:
    """`NAME_base64` for each stream whose text does not tell all."""
    return {f"{name}_base64": b64encode(data).decode() for name, data in streams.items() if not _is_text(data)}


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
