"""Scripts, the stylesheet and icons: read once, named by their contents, kept by browsers for a year.

All names carry one hash of all files, so an import between scripts is renamed without a build. Scripts are served
without comments and indentation.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from belljar.records import record

TYPES = {
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
TERMINAL_ONLY = ("xterm.mjs", "fit.mjs", "xterm.css", "terminal.js")
"""What only the view `terminal` loads."""
FOREVER = "public, max-age=31536000, immutable"
_COMMENT = re.compile(r"^[ \t]*(/\*\*.*?\*/|//[^\n]*)\n", re.DOTALL | re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_IMPORT = re.compile(r'(?<=["\'])\./([a-z]+)\.(m?js)(?=["\'])')


@record
class Asset:
    name: str
    """`live.0123456789ab.js`"""
    body: bytes
    type: str


@cache
def _sources() -> dict[str, bytes]:
    folder = files(__package__) / "static"
    vendor = folder / "vendor"
    return {each.name: each.read_bytes() for each in [*_files(folder), *_files(vendor)]}


def _files(folder: Traversable) -> list[Traversable]:
    found = [
        each
        for each in folder.iterdir()
        if each.is_file() and each.name.rpartition(".")[2] in TYPES
    ]
    return sorted(found, key=lambda each: each.name)


@cache
def version() -> str:
    digest = sha256()
    for name, body in _sources().items():
        digest.update(f"{name} {len(body)} ".encode() + body)
    return digest.hexdigest()[:12]


@cache
def all_assets() -> dict[str, Asset]:
    made = [_asset(name, body) for name, body in _sources().items()]
    return {asset.name: asset for asset in made}


def _asset(name: str, body: bytes) -> Asset:
    stem, _, ending = name.rpartition(".")
    served = (
        _served(body.decode()).encode()
        if ending == "js"
        else _plain_css(body.decode()).encode()
        if ending == "css"
        else body
    )
    return Asset(f"{stem}.{version()}.{ending}", served, TYPES[ending])


def _served(script: str) -> str:
    bare = _INDENT.sub("", _COMMENT.sub("", script))
    return _IMPORT.sub(lambda found: f"./{found[1]}.{version()}.{found[2]}", bare)


def _plain_css(text: str) -> str:
    return re.sub(
        r"\s*([{};])\s*", r"\1", re.sub(r"/\*.*?\*/\n?", "", text, flags=re.DOTALL)
    )


def url(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    return f"/static/{stem}.{version()}.{ending}"


def favicon(waiting: int, lost: bool) -> str:
    """A bell jar; with what waits as a number in it, hatched when the page is not live."""
    number = "99" if waiting > 99 else str(waiting)
    fill = "#6b7280" if lost else "#b3121d" if waiting else "#0b5cad"
    word = "!" if lost else number if waiting else ""
    font = f'font-family="sans-serif" font-weight="700" font-size="{15 if len(word) > 1 else 18}"'
    text = f'<text x="16" y="23" text-anchor="middle" {font} fill="#fff">{word}</text>'
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
        f'<path d="M16 2a11 11 0 0 1 11 11v14H5V13A11 11 0 0 1 16 2Z" fill="{fill}"/>'
        f'<path d="M2 30h28" stroke="{fill}" stroke-width="3"/>'
        f"{text if word else ''}</svg>"
    )
