"""Charts: their numbers, gaps, and names that a person can tell apart without colour."""

from __future__ import annotations

from xml.etree import ElementTree

from belljar.surfaces.http.dashboard.charts import Series, lines


def test_a_chart_says_its_last_numbers_and_dashes_its_second_line() -> None:
    chart = lines(
        "Took",
        ["00:00", "00:01", "00:02"],
        [Series("p50", [1, 2, 3]), Series("p95", [4, None, 6])],
        " s",
    )
    root = ElementTree.fromstring(str(chart))
    assert root.get("aria-label") == "Took: p50 3 s; p95 6 s"
    dashes = [each.get("stroke-dasharray") for each in root.iter("polyline")]
    assert dashes == [""]
    assert len(list(root.iter("circle"))) == 2  # a gap leaves single points
    assert "6 3" in [each.get("stroke-dasharray") for each in root.iter("line")]


def test_nothing_and_names_of_tenants_break_no_chart() -> None:
    ElementTree.fromstring(str(lines("<b>", ["<a>"], [Series("&", [None])])))
    ElementTree.fromstring(str(lines("none", [], [Series("x", [])])))
