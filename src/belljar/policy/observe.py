"""From a text to its effects: the interpreter's passes over one command."""

from belljar.records import record

from .effects import Effect
from .feed import Feed
from .knowledge import Knowledge
from .machine import Machine
from .shellstate import ShellState


@record
class Observed:
    effects: tuple[Effect, ...]
    after: ShellState
    commands: tuple[str, ...]


def observe(text: str, words: list[str] | None, state: ShellState, knowledge: Knowledge, parsing: bool) -> Observed:
    """The effects of a command, and the shell after it. A second pass undoes what conditions may not have done."""
    from .dispatch import dispatch

    effects: dict[Effect, None] = {}
    seen: dict[str, None] = {}
    after = state
    for undo in (False, True):
        current = state.detached()
        machine = Machine(dispatch, knowledge, parsing)
        machine.undo_branches = undo
        if words is not None:
            machine.simple(words, current, Feed())
        else:
            machine.run_text(text, current, Feed())
        for trap, where in machine.traps:
            with machine.under("trap"):
                machine.run_text(trap, where)
        effects.update(machine.effects)
        seen.update(machine.seen)
        after = current if not undo else after
        if not machine.branched:
            break
    return Observed(tuple(effects), after, tuple(seen))
