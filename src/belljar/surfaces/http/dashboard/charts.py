"""Charts as SVG, drawn by hand: lines told apart by their dashes and their names, never by colour alone."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from belljar.records import record

WIDTH, HEIGHT = 480, 140
LEFT, BOTTOM, TOP = 44, 20, 8
_DASHES = ("", "6 3", "2 3")


@record
class Series:
    name: str
    points: Sequence[float | None]


def lines(
    title: str, labels: Sequence[str], series: Sequence[Series], unit: str = ""
) -> Markup:
    """A line chart. A value that is not known leaves a gap."""
    top = max(
        (value for each in series for value in each.points if value is not None),
        default=0.0,
    )
    top = _round_up(top)
    summary = f"{title}: " + "; ".join(
        f"{each.name} {_last(each.points)}{unit}" for each in series
    )
    parts = [_axis(top, unit, labels)]
    for index, each in enumerate(series):
        parts += [_curve(points, index) for points in _runs(each.points, top)]
    legend = [_legend(each.name, index) for index, each in enumerate(series)]
    box = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT + 18}" role="img" aria-label="{escape(summary)}">'
    return Markup(box + "".join(parts) + "".join(legend) + "</svg>")


def _last(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{known[-1]:g}" if known else "none"


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    step = 10.0 ** len(str(int(value))) / 10
    return next(step * factor for factor in (1, 2, 5, 10) if step * factor >= value)


def _x(index: int, total: int) -> float:
    return LEFT + (WIDTH - LEFT - 8) * (index / max(1, total - 1))


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - BOTTOM - TOP) * (1 - value / top)


def _runs(values: Sequence[float | None], top: float) -> list[list[str]]:
    runs: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(f"{_x(index, len(values)):.1f},{_y(value, top):.1f}")
    return [run for run in runs if run]


def _curve(points: list[str], index: int) -> str:
    if len(points) == 1:
        x, y = points[0].split(",")
        return f'<circle class="series-{index}" cx="{x}" cy="{y}" r="2.5"/>'
    return f'<polyline class="series-{index}" stroke-dasharray="{_DASHES[index % 3]}" points="{" ".join(points)}"/>'


def _axis(top: float, unit: str, labels: Sequence[str]) -> str:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _y(top * share, top)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * share:g}{escape(unit)}</text>'
        )
    for index in {0, len(labels) // 2, len(labels) - 1} if labels else ():
        anchor = (
            "start" if index == 0 else "end" if index == len(labels) - 1 else "middle"
        )
        parts.append(
            f'<text x="{_x(index, len(labels)):.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">'
            f"{escape(labels[index])}</text>"
        )
    return "".join(parts)


def _legend(name: str, index: int) -> str:
    x = LEFT + index * 130
    return (
        f'<line class="series-{index}" stroke-dasharray="{_DASHES[index % 3]}" '
        f'x1="{x}" x2="{x + 24}" y1="{HEIGHT + 10}" y2="{HEIGHT + 10}"/>'
        f'<text x="{x + 30}" y="{HEIGHT + 14}">{escape(name)}</text>'
    )
