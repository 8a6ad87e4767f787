"""The policy: canonical text → parse → effects → rules → verdict."""

import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from belljar.errors import PolicyError

from .canonical import Canonical, canonical, canonical_argv
from .compound import Feed
from .effects import RISKS, Effect
from .machine import MAX_SECONDS, Machine, NeedsParser
from .marks import ATOM, show
from .parser import ParseError, TooComplex, parse
from .plain import plain_words
from .rules import Rule, RuleFile, parse_rules, read_rules
from .shellstate import ShellState
from .verdict import Finding, Verdict

log = logging.getLogger("belljar.policy")
log.addHandler(logging.NullHandler())

BUILT_IN = ("default", "strict", "ci", "permissive", "literal")
_BIDI = frozenset("\u200b\u200c\u200e\u200f\u2060\u00ad\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ORDER = {"allow": 0, "ask": 1, "deny": 2}
_RISK = {risk: index for index, risk in enumerate(RISKS)}


def policies_directory() -> Path:
    """The shipped policies: inside the installed package, or at the top of the repository."""
    inside = Path(__file__).parent.parent / "policies"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "policies"


class Policy:
    """Judges commands. Made once, used from any thread; it holds no state between commands."""

    def __init__(self, files: Sequence[RuleFile]) -> None:
        if not files:
            raise PolicyError("a policy needs at least one file")
        self.files = tuple(files)
        self.name = files[0].name
        self.version = hashlib.sha256("\0".join(file.text for file in files).encode()).hexdigest()[:12]
        self.rules: tuple[Rule, ...] = tuple(rule for file in files for rule in file.rules)
        self._plain: dict[tuple[str, str], Verdict] = {}
        self._by_kinds: dict[frozenset[str], tuple[Rule, ...]] = {}
        # Less trusted layers come later and may only tighten: the lowest asking risk, the smallest allowlist hold.
        self.ask_at = min((file.ask_at for file in files), key=lambda risk: _RISK.get(risk, 9))
        self.ask = "deny" if any(file.ask == "deny" for file in files) else "ask"
        self.default_risk = max((file.default_risk for file in files), key=_RISK.__getitem__)
        allowlists = [file.allow_programs for file in files if file.allow_programs]
        self.allow_programs = frozenset.intersection(*allowlists) if allowlists else None

    @classmethod
    def load(cls, name_or_path: "str | Path", *, layers: Iterable["str | Path"] = ()) -> "Policy":
        """A shipped policy by name or a file by path, tightened by further layers (operator, project, session)."""
        policy = cls(_with_bases(_find(name_or_path)))
        for layer in layers:
            policy = policy.tighten(layer)
        from .examples import check_examples

        check_examples(policy)
        return policy

    @classmethod
    def parse(cls, text: str, source: str = "<text>") -> "Policy":
        return cls(_with_bases(parse_rules(text, source)))

    def tighten(self, layer: "str | Path | Policy") -> "Policy":
        """This policy with a less trusted one on top. Nothing that either refuses is allowed by both together."""
        files = layer.files if isinstance(layer, Policy) else _with_bases(_find(layer))
        return Policy([*self.files, *(file for file in files if file not in self.files)])

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    # -- judging -------------------------------------------------------------------------------------------------

    def judge(
        self,
        command: object,
        *,
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        shell_state: ShellState | None = None,
    ) -> Verdict:
        """The verdict on a bash text (str) or an argument vector (list). Bad input is denied, never an exception."""
        state = _state(cwd, env, shell_state)
        text = _canonical(command)
        if text.problem:
            return self._refused(text, state)
        words = (
            list(command) if isinstance(command, Sequence) and not isinstance(command, str) else plain_words(text.text)
        )
        try:
            verdict = self._judged(text, words, state, parsing=True)
        except (ParseError, TooComplex, RecursionError) as error:
            reason = str(error) if not isinstance(error, RecursionError) else "it is nested too deeply to judge"
            verdict = self._refused(Canonical(text.text, reason), state)
        except Exception as error:  # a fault in the reader of some program must never let a command through
            log.exception("policy fault", extra={"fault": type(error).__name__})
            verdict = self._refused(Canonical(text.text, f"it could not be understood ({type(error).__name__})"), state)
        return verdict

    def judge_plain(
        self,
        command: object,
        *,
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        shell_state: ShellState | None = None,
    ) -> Verdict | None:
        """The same verdict where no parser is needed, else None: for callers that must not block on a child process."""
        if type(command) is not str or env or shell_state is not None:
            return self._judge_plain(command, cwd, env, shell_state)
        # A verdict depends on nothing but the text and the state it runs in, and agents repeat themselves.
        known = self._plain.get((command, cwd))
        if known is not None:
            return self._logged(known)
        verdict = self._judge_plain(command, cwd, None, None)
        if verdict is not None and len(command) < 500:
            if len(self._plain) >= 500:
                self._plain.clear()
            self._plain[command, cwd] = verdict
        return verdict

    def _judge_plain(
        self, command: object, cwd: str, env: Mapping[str, str] | None, shell_state: ShellState | None
    ) -> Verdict | None:
        text = _canonical(command)
        if text.problem:
            return self._refused(text, _state(cwd, env, shell_state))
        words = (
            list(command) if isinstance(command, Sequence) and not isinstance(command, str) else plain_words(text.text)
        )
        if words is None:
            return None
        try:
            return self._judged(text, words, _state(cwd, env, shell_state), parsing=False)
        except NeedsParser:
            return None
        except Exception:
            return self.judge(command, cwd=cwd, env=env, shell_state=shell_state)

    def _judged(self, text: Canonical, words: list[Any] | None, state: ShellState, parsing: bool) -> Verdict:
        effects, after = observe(text.text, words, state, parsing)
        if text.invisible:
            effects = (
                *effects,
                Effect("text.bidi" if _BIDI & set(text.text) else "text.invisible", show(text.text[:80])),
            )
        return self._decide(text.text, effects, after)

    def _refused(self, text: Canonical, state: ShellState) -> Verdict:
        reason = f"The command cannot be judged: {text.problem}."
        finding = Finding("text.refused", "deny", "blocked", reason)
        return self._logged(
            Verdict(
                "deny", "blocked", reason, (finding,), text.text, self._digest(text.text, state), str(self), (), state
            )
        )

    def _decide(self, text: str, effects: tuple[Effect, ...], state: ShellState) -> Verdict:
        found: dict[str, Finding] = {}
        for rule in self._relevant(frozenset(effect.kind for effect in effects)):
            if rule.id not in found and self._fires(rule, text, effects):
                found[rule.id] = self._finding(rule, effects)
        if self.allow_programs is not None:
            strangers = sorted(
                {e.program for e in effects if e.kind == "exec" and e.program.lower() not in self.allow_programs}
            )
            if strangers:
                listed = ", ".join(sorted(self.allow_programs))
                reason = f"{show(strangers[0])} is not on this policy's list of programs; use one of: {listed}."
                found["allowlist"] = Finding("allowlist", "deny", "blocked", reason)
        findings = tuple(sorted(found.values(), key=lambda f: (-_ORDER[f.decision], -_RISK[f.risk])))
        decision = max((f.decision for f in findings), key=_ORDER.__getitem__, default="allow")
        risk = max((f.risk for f in findings), key=_RISK.__getitem__, default=self.default_risk)
        risk = max(risk, self.default_risk, key=_RISK.__getitem__)
        reason = findings[0].reason if findings and decision != "allow" else "Nothing in it is against the policy."
        return self._logged(
            Verdict(decision, risk, reason, findings, text, self._digest(text, state), str(self), effects, state)
        )

    def _relevant(self, kinds: frozenset[str]) -> tuple[Rule, ...]:
        """The rules that could fire for effects of these kinds; most commands have the same few kinds."""
        if kinds not in self._by_kinds:
            if len(self._by_kinds) > 500:
                self._by_kinds.clear()
            self._by_kinds[kinds] = tuple(rule for rule in self.rules if rule.speaks_of(kinds))
        return self._by_kinds[kinds]

    @staticmethod
    def _fires(rule: Rule, text: str, effects: tuple[Effect, ...]) -> bool:
        if rule.regex is not None and not rule.regex.search(text):
            return False
        only_text = rule.regex is not None and not (rule.effect or rule.path or rule.program or rule.target)
        return only_text or any(rule.matches(effect) for effect in effects)

    def _finding(self, rule: Rule, effects: tuple[Effect, ...]) -> Finding:
        decision = rule.decision or (
            "deny" if rule.risk == "blocked" else "ask" if _RISK[rule.risk] >= _RISK.get(self.ask_at, 9) else "allow"
        )
        decision = "deny" if decision == "ask" and self.ask == "deny" else decision
        cause = next((effect for effect in effects if rule.regex is None and rule.matches(effect)), None)
        reason = (
            f"{rule.reason} ({cause.kind}: {show(cause.target)[:120]})"
            if cause and decision != "allow"
            else rule.reason
        )
        return Finding(rule.id, decision, "blocked" if decision == "deny" else rule.risk, reason)

    def _digest(self, text: str, state: ShellState) -> str:
        return hashlib.sha256(f"{self.version}\0{state.cwd}\0{text}".encode("utf-8", "replace")).hexdigest()

    def _logged(self, verdict: Verdict) -> Verdict:
        if log.isEnabledFor(logging.INFO):
            rules = [rule.id for rule in verdict.rules]
            log.info(
                "%s %s %s",
                verdict.decision,
                verdict.risk,
                verdict.canonical[:200],
                extra={
                    "decision": verdict.decision,
                    "risk": verdict.risk,
                    "rules": rules,
                    "policy": verdict.policy,
                    "digest": verdict.digest,
                },
            )
        return verdict


def observe(
    text: str, words: list[Any] | None, state: ShellState, parsing: bool
) -> tuple[tuple[Effect, ...], ShellState]:
    """The effects of a command, and the shell after it. A second pass undoes what conditions may not have done."""
    from .dispatch import dispatch  # the first time takes a while, which is not the command's fault

    effects: dict[Effect, None] = {}
    after, deadline = state, time.monotonic() + MAX_SECONDS
    for undo in (False, True):
        current = state.detached()
        machine = Machine(dispatch, parsing, deadline)
        machine.undo_branches = undo
        feed = Feed()
        if words is not None:
            machine.simple([str(word) for word in words], current, feed)
        elif parsing and _only_comments(text):
            raise TooComplex("there is no command in it, only comments")
        else:
            machine.run_text(text, current, feed)
        machine.catch_up()
        _shadows(machine, state, current)
        for trap, where in machine.traps:
            with machine.under("trap"):
                machine.run_text(trap, where)
        effects.update(machine.effects)
        after = current if not undo else after
        if not machine.branched:
            break
    return tuple(effects), after


def _shadows(machine: Machine, before: ShellState, after: ShellState) -> None:
    """What stays in the shell under the name of a program runs whenever that program is called."""
    from .call import PROGRAMS

    made = {
        name: after.detached()
        for old, new in ((before.aliases, after.aliases), (before.functions, after.functions))
        for name, body in new.items()
        if name in PROGRAMS and body is not old.get(name) and not str(body).startswith(f"{name} ")
    }
    for name, shell in made.items():
        machine.simple([name, ATOM], shell, Feed())


def _only_comments(text: str) -> bool:
    try:
        return not parse(text).get("Stmts")
    except ParseError:
        return False  # an effect of its own, so that the rules see it


def _state(cwd: str, env: Mapping[str, str] | None, given: ShellState | None) -> ShellState:
    state = given.detached() if given is not None else ShellState.fresh(cwd, None)
    state.env.update({str(name): str(value) for name, value in (env or {}).items()})
    return state


def _canonical(command: object) -> Canonical:
    if isinstance(command, Sequence) and not isinstance(command, str | bytes | bytearray):
        return canonical_argv(list(command))
    return canonical(command)


def _find(name_or_path: "str | Path") -> RuleFile:
    name = str(name_or_path)
    if name in BUILT_IN:
        return read_rules(policies_directory() / f"{name}.toml")
    path = Path(name)
    if not path.is_file():
        raise PolicyError(f"no policy {name!r}: give a file or one of {', '.join(BUILT_IN)}")
    return read_rules(path)


def _with_bases(file: RuleFile) -> list[RuleFile]:
    """A file and what it extends; the base's rules hold too."""
    files, seen = [file], {file.name}
    while files[-1].extends:
        base = files[-1].extends
        if base in seen or base not in BUILT_IN:
            raise PolicyError(f"{file.source}: extends {base!r}, which is not one of {', '.join(BUILT_IN)}")
        seen.add(base)
        files.append(_find(base))
    return files
