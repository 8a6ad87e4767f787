"""Shows the progress, one line per step: updated in place on a terminal, printed now and then elsewhere."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

REDRAW_SECONDS = 0.2
NEWS_SECONDS = (
    5.0  # without a terminal: how often the progress of a long step is printed
)
BAR = 20


class SetupError(Exception):
    """Why it failed, and what to do next."""

    def __init__(self, reason: str, remedy: str = "", log: str = "") -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.log = reason, remedy, log


@dataclass
class Report:
    """The line of one step. Nothing is shown before its first report."""

    name: str
    text: str = ""
    fraction: float | None = None
    started: float | None = None
    ended: float | None = None
    printed: float = 0.0
    """When it was last printed, without a terminal."""
    gauge: Callable[[], float] | None = None

    def __call__(
        self,
        fraction: float | None,
        text: str,
        gauge: Callable[[], float] | None = None,
    ) -> None:
        """`gauge` is called whenever the line is drawn, for a step that does not report its progress."""
        self.started = self.started or time.monotonic()
        self.fraction, self.text, self.gauge = fraction, text, gauge

    def so_far(self) -> float | None:
        return min(self.gauge(), 0.99) if self.gauge else self.fraction

    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - (self.started or time.monotonic())


Action = Callable[[Report], None]


class Board:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty()
        self._drawn = 0
        self._reports: list[Report] = []
        self._finished: set[int] = set()

    def report(self, name: str) -> Report:
        self._reports.append(Report(name))
        return self._reports[-1]

    def note(self, text: str) -> None:
        self._erase()
        self._say(text)

    def draw(self) -> None:
        if self._live:
            self._redraw()
        else:
            for report in self._reports:
                self._print(report)

    def close(self, text: str) -> None:
        self.draw()
        self._say(text)

    def failed(self, error: SetupError) -> None:
        self.draw()
        self._say(error.reason)
        if error.remedy:
            self._say(f"what to do: {error.remedy}")
        if error.log:
            self._say(f"the whole log: {error.log}")

    def _redraw(self) -> None:
        self._erase()
        for each in self._reports:
            if (
                each.ended is not None
                and each.started is not None
                and id(each) not in self._finished
            ):
                self._finished.add(id(each))
                self._out.write(f"  {each.name:<12} done in {each.seconds():.0f} s\n")
        running = [
            each
            for each in self._reports
            if each.started is not None and each.ended is None
        ]
        width = shutil.get_terminal_size().columns - 1
        for each in running:
            self._out.write(_line(each)[:width] + "\n")
        self._drawn = len(running)
        self._out.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _print(self, report: Report) -> None:
        now = time.monotonic()
        if report.started is None or id(report) in self._finished:
            return
        if report.ended is not None:
            self._finished.add(id(report))
            self._say(f"{report.name}: done in {report.seconds():.0f} s")
        elif not report.printed or now - report.printed > NEWS_SECONDS:
            report.printed = now
            fraction, seconds = report.so_far(), report.seconds()
            part = [] if fraction is None else [f"{fraction:.0%}"]
            so_far = ", ".join([*part, *([f"{seconds:.0f} s"] if seconds >= 1 else [])])
            self._say(f"{report.name}: {report.text}{f' ({so_far})' if so_far else ''}")

    def _say(self, text: str) -> None:
        self._out.write(f"belljar: {text}\n")
        self._out.flush()


def _line(each: Report) -> str:
    fraction = each.so_far()
    if fraction is None:
        place = int(each.seconds() * 4) % BAR
        filled = " " * place + "#" + " " * (BAR - 1 - place)
        part = "     "
    else:
        filled = f"{'#' * round(BAR * fraction):<{BAR}}"
        part = f"{fraction:4.0%} "
    return f"  {each.name:<12} [{filled}] {part}{each.seconds():4.0f} s  {each.text}"


@dataclass
class Step:
    name: str
    action: Action
    after: list[str]
    thread: threading.Thread | None = None
    error: BaseException | None = None


@dataclass
class Plan:
    steps: dict[str, Step] = field(default_factory=dict)

    def add(self, name: str, action: Action, after: list[str] | None = None) -> None:
        self.steps[name] = Step(name, action, after or [])

    def carry_out(self, board: Board) -> None:
        """Run each step in a thread as soon as the steps it waits for are done; the first error stops everything."""
        done: set[str] = set()
        while len(done) < len(self.steps):
            for step in self.steps.values():
                if step.thread is None and done.issuperset(step.after):
                    step.thread = threading.Thread(
                        target=_run, args=(step, board.report(step.name)), daemon=True
                    )
                    step.thread.start()
            running = [
                step
                for step in self.steps.values()
                if step.thread and step.name not in done
            ]
            seconds = REDRAW_SECONDS if len(running) == 1 else REDRAW_SECONDS / 2
            running[0].thread.join(seconds)  # type: ignore[union-attr]
            for step in running:
                if step.thread and not step.thread.is_alive():
                    if step.error is not None:
                        raise step.error
                    done.add(step.name)
            board.draw()


def _run(step: Step, report: Report) -> None:
    try:
        step.action(report)
        report.ended = time.monotonic()
    except BaseException as error:
        step.error = error
