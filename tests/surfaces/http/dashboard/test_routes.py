"""The addresses: headers of every page, what is not there, what is kept by browsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from belljar.surfaces.http.dashboard import assets

PAGES = (
    "/",
    "/audit",
    "/policy",
    "/usage",
    "/keys",
    "/sessions/s001",
    "/sessions/s001/changes",
    "/sessions/s001/limits",
)


def test_every_page_has_the_headers(client: Callable[..., Any]) -> None:
    caller = client()
    for path in (*PAGES, "/login", "/nowhere-at-all/x", "/sessions/none"):
        answer = caller.get(path)
        if path.startswith("/nowhere"):
            assert answer.status_code == 404
            continue
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy, path
        assert "require-trusted-types-for 'script'; trusted-types stream" in policy, (
            path
        )
        assert "unsafe" not in policy, path
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_only_the_terminal_may_make_styles_and_it_shows_no_approvals(
    client: Callable[..., Any],
) -> None:
    answer = client().get("/sessions/s001/terminal")
    policy = answer.headers["content-security-policy"]
    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "trusted-types" not in policy
    assert "<article" not in answer.text
    assert "cards." not in answer.text


def test_what_is_not_there_and_what_is_anothers_look_the_same(
    client: Callable[..., Any],
) -> None:
    caller = client()
    first, second = caller.get("/sessions/none"), caller.get("/sessions/other-tenants")
    assert first.status_code == second.status_code == 404
    assert "<h1>Not found</h1>" in first.text
    assert first.content == second.content
    assert caller.get("/sessions/s001/nothing").status_code == 404


def test_assets_are_kept_for_ever_under_their_names(client: Callable[..., Any]) -> None:
    caller = client(key=None)
    answer = caller.get(assets.url("overview.js"))
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"].startswith("text/javascript")
    assert caller.get("/static/overview.000000000000.js").status_code != 200
    icon = caller.get("/favicon.svg?waiting=7")
    assert icon.headers["content-type"] == "image/svg+xml"
    assert ">7<" in icon.text
    assert "<script" not in caller.get("/favicon.svg?waiting=<script>").text
