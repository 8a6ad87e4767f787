"""`belljar review`: all changes on a full screen. The tree is on the left, the diff of its row on the right; a narrow
terminal shows one of the two. Nothing is applied before Enter.

Diffs are made in a thread, as one of a large file takes a while. Colours only repeat what signs and words say.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Point
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    UIContent,
    UIControl,
    VSplit,
    Window,
)
from prompt_toolkit.output import ColorDepth

from belljar.errors import BelljarError
from belljar.staged.change import Change, counted, in_bytes
from belljar.staged.diff import quoted
from belljar.staged.review import Review
from belljar.surfaces.cli.review_tree import Node, Tree
from belljar.surfaces.cli.staged_choice import Choice, Item
from belljar.surfaces.cli.staged_choice import line as described
from belljar.surfaces.terminal import colours, render

NARROW = 72  # columns; below, there is room for one pane
PAGE = 10  # lines
MOST_LISTED = 500  # changes of a directory that are named

End = Literal["apply", "drop", "leave"]
KEYS = "space choose  enter apply  D and drop the rest  / search  ? keys  q leave"
_HELP = (
    "up, down, j, k      the change above, below; in the diff the line",
    "page up, page down  ten of them; home, end: the first and the last",
    "left, right, h, l   fold and unfold a directory, or go to the diff and back",
    "space               choose it, or let it go: a change, a directory, in the diff one hunk",
    "a                   choose all, or none",
    "tab                 from the tree to the diff and back",
    "/  n                search names, then contents; the next one",
    "v                   edit the sandbox's text: what the editor leaves is applied",
    "t                   both sides of a file that you changed too",
    "m                   keep both sides' changes of it",
    "enter               apply what is chosen",
    "D                   apply what is chosen and drop all the rest, after a question",
    "q, escape           leave; nothing is applied (from here: back)",
)


@dataclass
class View:
    """The right side: lines, and the numbers of those where a hunk begins."""

    lines: list[StyleAndTextTuples]
    hunks: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


HELP = View([[("", each)] for each in _HELP], texts=[*_HELP])
READING = View([[("", "reading …")]])


class Lines(UIControl):
    """Makes only the lines that are seen."""

    def __init__(
        self,
        count: Callable[[], int],
        line: Callable[[int], StyleAndTextTuples],
        at: Callable[[], int],
    ) -> None:
        self._count, self._line, self._at = count, line, at

    def create_content(self, width: int, height: int) -> UIContent:
        count = self._count()
        return UIContent(
            get_line=self._line,
            line_count=max(1, count),
            cursor_position=Point(0, min(self._at(), max(0, count - 1))),
            show_cursor=False,
        )


class ReviewScreen:
    def __init__(self, review: Review, changes: Sequence[Change], title: str) -> None:
        self.tree = Tree(changes)
        self.choice = Choice(review, self.tree.items)
        self._review, self._title, self._changes = review, title, counted(changes)
        self._at, self._line = 0, 0
        self._in_diff = self._both_sides = self._helping = self._dropping = False
        self._sought = ""
        self._said = KEYS
        self._thread = ThreadPoolExecutor(1, "belljar-review")
        self._views: dict[str, View] = {}
        self._coming: dict[str, Future[str]] = {}
        self._search = Buffer(multiline=False, accept_handler=self._search_for)
        self._app: Application[End] = self._application()

    def run(self) -> End:
        """Until the person applies or leaves."""
        try:
            return self._app.run()
        finally:
            self._thread.shutdown(cancel_futures=True)

    # What is drawn.

    def _application(self) -> Application[End]:
        wide = Condition(lambda: self._app.output.get_size().columns >= NARROW)
        tree = Window(
            Lines(lambda: len(self.tree.rows), self._row, lambda: self._at),
            width=Dimension(weight=2),
        )
        diff = Window(
            Lines(lambda: len(self._view().lines), self._diff_line, lambda: self._line),
            width=Dimension(weight=3),
            wrap_lines=True,
        )
        one = Dimension(min=0, max=1, preferred=1)
        self._searching = Window(BufferControl(self._search), height=one)
        self._panes = Window(
            FormattedTextControl("", focusable=True), height=Dimension(max=0)
        )
        is_searching = Condition(lambda: self._app.layout.has_focus(self._search))
        edge = Window(width=1, char="│", style="fg:ansibrightblack")
        in_tree = Condition(lambda: not self._in_diff)
        body = HSplit(
            [
                ConditionalContainer(VSplit([tree, edge, diff]), wide),
                ConditionalContainer(tree, ~wide & in_tree),
                ConditionalContainer(diff, ~wide & ~in_tree),
            ]
        )
        ask = VSplit(
            [
                Window(FormattedTextControl("search: "), width=8, height=one),
                self._searching,
            ]
        )
        said = Window(
            FormattedTextControl(lambda: self._said), height=one, style="bold"
        )
        root = HSplit(
            [
                Window(FormattedTextControl(self._head), height=one, style="reverse"),
                body,
                self._panes,
                ConditionalContainer(ask, is_searching),
                ConditionalContainer(said, ~is_searching),
            ]
        )
        return Application(
            layout=Layout(root, focused_element=self._panes),
            key_bindings=self._keys(is_searching),
            full_screen=True,
            color_depth=None if colours.wanted() else ColorDepth.DEPTH_1_BIT,
        )

    def _head(self) -> str:
        chosen = len(self.tree.chosen)
        return f" {self._title}  {self._changes}  {chosen} of {len(self.tree.items)} chosen"

    def _row(self, number: int) -> StyleAndTextTuples:
        if number >= len(self.tree.rows):
            return []
        node = self.tree.rows[number]
        here = number == self._at
        style = ("reverse" if not self._in_diff else "underline") if here else ""
        text = f"{'>' if here else ' '}{self.tree.mark(node)} {'  ' * node.depth}{_named(node)}"
        return [(style, render.plain(text))]

    def _view(self, *, wait: bool = False) -> View:
        """What is on the right. `wait`: for a key that is about its lines."""
        node = self.tree.rows[self._at]
        if self._helping:
            return HELP
        if node.item is None:
            return self._of_directory(node)
        path = node.item.change.path
        view = self._views.get(path) or self._made(node.item, wait=wait)
        if view is None:
            return READING
        self._views[path] = view
        return view

    def _of_directory(self, node: Node) -> View:
        items = self.tree.items[node.first : node.last]
        head = f"{quoted(node.path)}/  {counted(item.change for item in items)}"
        more = (
            [f"… and {len(items) - MOST_LISTED} more"]
            if len(items) > MOST_LISTED
            else []
        )
        lines = [
            head,
            "",
            *(described(item.change) for item in items[:MOST_LISTED]),
            *more,
        ]
        return View([[("", render.plain(each))] for each in lines], texts=lines)

    def _made(self, item: Item, *, wait: bool) -> View | None:
        """None: the thread is still at it."""
        path = item.change.path
        future = self._coming.get(path)
        if future is None:
            future = self._coming[path] = self._thread.submit(
                self._read, item, self._both_sides
            )
            future.add_done_callback(lambda _: self._app.invalidate())
        if not (wait or future.done()):
            return None
        del self._coming[path]
        try:
            text = future.result()
        except (BelljarError, OSError) as error:
            text = f"# {error}"
        return _drawn(item, text, by_hunk=not self._both_sides)

    def _read(self, item: Item, both_sides: bool) -> str:
        if both_sides and item.change.conflict:
            return self._review.three(item.change.path)
        if item.both:
            return self._review.as_edited(
                item.change, self._review.both(item.change.path) or b""
            )
        if item.text is not None:
            return self._review.as_edited(item.change, item.text)
        return self.choice.show(item.change).text

    def _diff_line(self, number: int) -> StyleAndTextTuples:
        view = self._view()
        if number >= len(view.lines):
            return []
        found = [*view.lines[number]]
        if number in view.hunks and (item := self.tree.rows[self._at].item):
            mark = (
                "[x]"
                if view.hunks.index(number) in _hunks_of(item, len(view.hunks))
                else "[ ]"
            )
            found.insert(0, ("", f"{mark} "))
        if self._in_diff:
            found.insert(0, ("bold", ">" if number == self._line else " "))
        return found

    # Keys.

    def _keys(self, is_searching: Condition) -> KeyBindings:
        keys = KeyBindings()
        asked = Condition(lambda: self._dropping)
        free = ~is_searching & ~asked

        def on(*names: str, act: Callable[[], None]) -> None:
            for name in names:
                keys.add(name, filter=free)(partial(self._do, act))

        for names, step in (
            (("up", "k"), -1),
            (("down", "j"), 1),
            (("pageup",), -PAGE),
            (("pagedown",), PAGE),
        ):
            on(*names, act=partial(self._go, step))
        on("home", "g", act=lambda: self._go(-sys.maxsize))
        on("end", "G", act=lambda: self._go(sys.maxsize))
        on("left", "h", act=self._left)
        on("right", "l", act=self._right)
        on("tab", act=self._other_pane)
        on("space", act=self._toggle)
        on("a", act=lambda: self._left_out(self.tree.toggle_all()))
        on("v", act=self._edit)
        on("t", act=self._show_both_sides)
        on("m", act=self._keep_both)
        on("/", act=lambda: self._app.layout.focus(self._search))
        on("n", act=self._next)
        on("?", act=self._help)
        on("enter", act=self._apply)
        on("D", act=self._drop)
        on("q", "escape", act=self._leave)
        on("c-c", act=lambda: self._app.exit(result="leave"))
        on("c-z", act=lambda: self._app.suspend_to_background())

        @keys.add("<any>", filter=asked)
        def _(event: KeyPressEvent) -> None:
            self._dropping, self._said = False, KEYS
            if event.data.lower() == "y":
                event.app.exit(result="drop")

        @keys.add("escape", filter=is_searching)
        @keys.add("c-c", filter=is_searching)
        def _(event: KeyPressEvent) -> None:
            self._search.reset()
            event.app.layout.focus(self._panes)

        return keys

    def _do(self, act: Callable[[], None], event: KeyPressEvent) -> None:
        self._said = KEYS
        act()

    @property
    def _item(self) -> Item | None:
        return self.tree.rows[self._at].item

    def _go(self, step: int) -> None:
        if self._in_diff:
            self._line = max(
                0, min(len(self._view(wait=True).lines) - 1, self._line + step)
            )
        else:
            self._to(max(0, min(len(self.tree.rows) - 1, self._at + step)))

    def _to(self, row: int) -> None:
        self._helping = False
        if self._both_sides:
            self._forget_view()
        self._at, self._line, self._both_sides = row, 0, False

    def _forget_view(self) -> None:
        if self._item is not None:
            self._views.pop(self._item.change.path, None)
            self._coming.pop(self._item.change.path, None)

    def _left(self) -> None:
        node = self.tree.rows[self._at]
        if self._in_diff:
            self._in_diff = self._helping = False
        elif node.item is None and node.is_open:
            self.tree.fold(node, is_open=False)
        elif (above := self.tree.above(node)) is not None:
            self._to(self.tree.rows.index(above))

    def _right(self) -> None:
        node = self.tree.rows[self._at]
        if node.item is not None:
            self._in_diff = True
        elif not self._in_diff:
            self.tree.fold(node, is_open=True)

    def _other_pane(self) -> None:
        self._in_diff, self._helping = not self._in_diff, False

    def _toggle(self) -> None:
        node = self.tree.rows[self._at]
        item, hunks = node.item, self._view(wait=True).hunks if self._in_diff else []
        if item is None or len(hunks) < 2:
            self._left_out(self.tree.toggle(node))
            if item is not None and not item.can_be_applied:
                self._said = "this cannot be applied: it is a FIFO, a socket, a device or nested too deeply"
            elif item is not None and item.answer == "y" and item.needs_own_yes:
                self._said = (
                    "the host would run this by itself"
                    if item.change.runs_later
                    else "it replaces your change"
                )
            return
        here = max(0, sum(start <= self._line for start in hunks) - 1)
        chosen = _hunks_of(item, len(hunks)) ^ {here}
        item.decide(
            "y" if chosen else "n",
            hunks=sorted(chosen) if len(chosen) < len(hunks) else (),
        )

    def _left_out(self, items: list[Item]) -> None:
        if items:
            self._said = f"{len(items)} left out: the host would run them, or you changed them too; choose each by itself"

    def _edit(self) -> None:
        item = self._item
        if item is None or item.change.after is None:
            self._said = "only a text file can be edited"
            return
        self._app.create_background_task(self._edited(item))

    async def _edited(self, item: Item) -> None:
        try:
            item.decide(
                "y", text=await run_in_terminal(partial(self.choice.edited, item))
            )
        except BelljarError as error:
            self._said = render.plain(str(error))
        self._forget_view()
        self._app.invalidate()

    def _show_both_sides(self) -> None:
        if self._item is None or not self._item.change.conflict:
            self._said = "you have not changed this one"
            return
        self._forget_view()
        self._both_sides, self._line = not self._both_sides, 0

    def _keep_both(self) -> None:
        item = self._item
        if item is None or not item.change.conflict:
            self._said = "you have not changed this one"
            return
        try:
            text = self._review.both(item.change.path)
        except BelljarError as error:
            self._said = render.plain(str(error))
            return
        if text is None:
            self._said = "both changed the same lines, or it is not known how it was before; v edits"
            return
        item.decide("y", both=True)
        self._said, self._both_sides = "both sides' changes are kept", False
        self._forget_view()

    def _help(self) -> None:
        self._helping = self._in_diff = True
        self._line = 0

    def _leave(self) -> None:
        if self._helping:
            self._helping = self._in_diff = False
        else:
            self._app.exit(result="leave")

    def _apply(self) -> None:
        if self.tree.chosen:
            self._app.exit(result="apply")
        else:
            self._said = "nothing is chosen; space chooses, q leaves"

    def _drop(self) -> None:
        rest = len(self.tree.items) - len(self.tree.chosen)
        self._dropping = True
        self._said = (
            f"Apply {len(self.tree.chosen)} and drop the other {rest} for good? [y/N] "
        )

    # Searching.

    def _search_for(self, buffer: Buffer) -> bool:
        self._sought = buffer.text
        self._app.layout.focus(self._panes)
        self._next()
        return False

    def _next(self) -> None:
        if not self._sought:
            self._said = "/ searches"
        elif self._in_diff:
            self._next_line()
        else:
            self._next_change()

    def _next_line(self) -> None:
        texts = self._view(wait=True).texts
        after = [*range(self._line + 1, len(texts)), *range(self._line + 1)]
        found = next(
            (number for number in after if self._sought in texts[number]), None
        )
        if found is None:
            self._said = f"not in this one: {render.plain(self._sought)}"
        else:
            self._line = found

    def _next_change(self) -> None:
        """First among the names, which are at hand; the texts have to be read."""
        node = self.tree.rows[self._at]
        start = node.first + (node.item is not None)
        items = [*self.tree.items[start:], *self.tree.items[:start]]
        found = next((item for item in items if self._sought in item.change.path), None)
        if found is not None:
            self._to(self.tree.show(found))
        else:
            self._said = "searching …"
            self._app.create_background_task(self._in_texts(items))

    async def _in_texts(self, items: Sequence[Item]) -> None:
        find = partial(_holding, self.choice, items, self._sought)
        found = await asyncio.get_running_loop().run_in_executor(self._thread, find)
        self._said = (
            f"in none of them: {render.plain(self._sought)}" if found is None else KEYS
        )
        if found is not None:
            self._to(self.tree.show(found))
        self._app.invalidate()


def _holding(choice: Choice, items: Sequence[Item], text: str) -> Item | None:
    return next((item for item in items if text in choice.show(item.change).text), None)


def _named(node: Node) -> str:
    if node.item is None:
        count = "" if node.is_open else f"  ({node.last - node.first})"
        return f"{'▾' if node.is_open else '▸'} {quoted(node.name)}/{' (new)' if node.is_new else ''}{count}"
    change = node.item.change
    lines = "" if change.added is None else f"  +{change.added} −{change.removed}"
    edited = (
        "  (edited)"
        if node.item.text is not None
        else "  (both sides)"
        if node.item.both
        else ""
    )
    text = described(change).replace(quoted(change.path), quoted(node.name), 1)
    return f"{text}{lines}{edited}"


def _hunks_of(item: Item, count: int) -> set[int]:
    """The numbers of the hunks that are chosen."""
    if item.answer != "y":
        return set()
    return set(item.hunks) if item.hunks else {*range(count)}


def _drawn(item: Item, text: str, *, by_hunk: bool) -> View:
    """A diff with its notes above."""
    change = item.change
    notes = [described(change)]
    notes += (
        [f"# {change.conflict}; t shows both sides, m keeps both"]
        if change.conflict
        else []
    )
    notes += (
        [f"# binary, {in_bytes(change.size)}"]
        if change.binary and not change.members
        else []
    )
    shown = [
        render.exact(each).expandtabs(4)
        for each in [*notes, *text.rstrip("\n").split("\n")]
    ]
    lines: list[StyleAndTextTuples] = [
        [*each] for each in colours.fragments(shown, change.path)
    ]
    hunks = [number for number, each in enumerate(shown) if each.startswith("@@")]
    has_hunks = (
        by_hunk
        and change.kind in ("modified", "added")
        and item.text is None
        and not item.both
    )
    return View(lines, hunks if has_hunks else [], shown)


def reviewed(
    review: Review, changes: Sequence[Change], title: str
) -> tuple[ReviewScreen, End]:
    screen = ReviewScreen(review, changes, title)
    return screen, screen.run()
