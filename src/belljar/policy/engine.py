"""The policy: canonical text → parse → effects → rules → verdict."""

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from belljar import tables
from belljar.errors import PolicyError

from .canonical import Canonical, canonical, canonical_argv, plain_words
from .decision import RISK, Decider
from .knowledge import Knowledge, shipped
from .marks import show
from .parser import NeedsParser, ParseError, TooComplex
from .paths import WORKSPACE
from .rules import Rule, RuleFile, check_ids, narrowed, parse_rules, read_rules
from .shellstate import Feed, ShellState
from .toml_files import policies_directory, read_toml
from .verdict import Effect, Finding, Verdict

BUILT_IN = ("default", "strict", "ci", "permissive", "literal", "none")
SYSTEM = ("/etc/", "/lib", "/opt/", "/usr/", "/var/")
UNJUDGED = "Not judged: the policy 'none' looks at no command."
MAX_REMEMBERED = 500  # verdicts; agents often repeat commands
MAX_REMEMBERED_LENGTH = (
    500  # characters of such a command, so that all of them take little memory
)
_BIDI = frozenset(
    "\u200b\u200c\u200e\u200f\u2060\u00ad\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


Observed = tuple[
    tuple[Effect, ...], ShellState, tuple[str, ...]
]  # effects, the shell afterwards, readings of commands
_Key = tuple[str, str, bool, bool]
Env = Mapping[str, str] | None
State = ShellState | None


def observe(
    text: str,
    words: list[str] | None,
    state: ShellState,
    knowledge: Knowledge,
    parsing: bool,
) -> Observed:
    """What a command does. If it has conditions, a second pass assumes that their branches did not run."""
    from .dispatch import KNOWN
    from .machine import Machine

    effects: dict[Effect, None] = {}
    readings: dict[str, None] = {}
    after = state
    for undo in (False, True):
        current = state.detached()
        machine = Machine(KNOWN, knowledge, parsing, undo)
        if words is not None:
            machine.simple_command(words, current, Feed())
        else:
            machine.run_text(text, current)
        for trap, where in machine.traps:
            with machine.under("trap"):
                machine.run_text(trap, where)
        effects.update(machine.effects)
        readings.update(machine.readings)
        if undo:
            after.merge(current)
        after = after if undo else current
        if not machine.branched:
            break
    return tuple(effects), after, tuple(readings)


class Policy:
    """Judges commands. It keeps no state between commands, so any thread may use it.

    The first `trusted` files are the operator's (a file, and what it extends); the others can only tighten.

    verdict = belljar.Policy.load("default").judge("rm -rf /")
    """

    def __init__(self, files: Sequence[RuleFile], trusted: int | None = None) -> None:
        if not files:
            raise PolicyError("a policy needs at least one file")
        check_ids(files[:trusted])
        self.files, self.trusted = (
            tuple(files),
            len(files) if trusted is None else trusted,
        )
        self.name = files[0].name
        self.knowledge, texts = self._load_knowledge()
        self.version = tables.digest(
            "\0".join([*(file.text for file in files), *texts])
        )[:12]
        self.ask_at = min(
            (file.ask_at for file in files), key=lambda risk: RISK.get(risk, 9)
        )
        self.ask = "deny" if any(file.ask == "deny" for file in files) else "ask"
        self.judges = any(file.judge for file in files)
        self.default_risk = max(
            (file.default_risk for file in files), key=RISK.__getitem__
        )
        allowlists = [file.allow_programs for file in files if file.allow_programs]
        self.allow_programs = (
            frozenset.intersection(*allowlists) if allowlists else None
        )
        self.rules = tuple(rule for file in files for rule in file.rules)
        self.network_ceiling = reduce(
            narrowed, (file.network_ceiling for file in files), None
        )
        self.network_allow = self._network_allow()
        allows = tuple(
            allow for file in self.files[: self.trusted] for allow in file.allows
        )
        self._decider = Decider(
            self.rules, self.decides, allows, self.default_risk, self.allow_programs
        )
        self._remembered: dict[_Key, Verdict] = {}
        self.is_unproved = False
        """Its examples are to be checked before it first judges a command of a session."""

    def _load_knowledge(self) -> tuple[Knowledge, list[str]]:
        knowledge = shipped()
        paths = [
            (path, at < self.trusted)
            for at, file in enumerate(self.files)
            for path in file.knowledge
        ]
        if not paths:
            return knowledge, []
        from .schema import check

        for path, trusted in paths:
            data = read_toml(Path(path))
            check(data, path)
            knowledge = knowledge.with_file(data, path, trusted)
        return knowledge, [Path(path).read_text("utf-8") for path, _ in paths]

    def _network_allow(self) -> tuple[str, ...] | None:
        """Hosts that every session may reach: those of the operator's files, narrowed by all other files."""
        own = [
            file.network_allow
            for file in self.files[: self.trusted]
            if file.network_allow is not None
        ]
        found = (
            tuple(dict.fromkeys(host for hosts in own for host in hosts))
            if own
            else None
        )
        for file in self.files[self.trusted :] if found is not None else ():
            found = narrowed(found, file.network_allow)
        return narrowed(found, self.network_ceiling) if found is not None else None

    @classmethod
    def load(
        cls,
        name_or_path: "str | Path",
        *,
        layers: Iterable["str | Path"] = (),
        prove: bool = True,
    ) -> "Policy":
        """Load a shipped policy by name, or a file by path. `layers` (project, session) tighten it."""
        policy = cls(_with_bases(_find(name_or_path)))
        for layer in layers:
            policy = policy.tighten(layer)
        policy.is_unproved = True
        if prove:
            policy.prove()
        return policy

    def prove(self) -> None:
        """Check the examples of the rules and of the knowledge. PolicyError if one is judged otherwise."""
        from .examples import check_examples

        check_examples(self)
        self.is_unproved = False

    @classmethod
    def parse(cls, text: str, source: str = "<text>") -> "Policy":
        return cls(_with_bases(parse_rules(text, source)))

    def as_dict(self) -> dict[str, Any]:
        """Everything that `restored` needs: the texts of the files, and the names of shipped ones."""
        files = [
            {"name": file.name}
            if file.shipped
            else {"text": file.text, "source": os.path.abspath(file.source)}
            for file in self.files
        ]
        return {"name": self.name, "files": files, "trusted": self.trusted}

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> "Policy":
        files = [
            _find(each["name"]) if "name" in each else parse_rules(**each)
            for each in saved["files"]
        ]
        return cls(files, saved["trusted"])

    def tighten(self, layer: "str | Path | Policy") -> "Policy":
        """This policy with a less trusted one on top. What either refuses, the result refuses."""
        files = layer.files if isinstance(layer, Policy) else _with_bases(_find(layer))
        return Policy(
            [*self.files, *(file for file in files if file not in self.files)],
            self.trusted,
        )

    def decides(self, rule: Rule) -> str:
        """What a rule decides if it fires, without exceptions."""
        asks = RISK[rule.risk] >= RISK.get(self.ask_at, 9)
        decision = rule.decision or (
            "deny" if rule.risk == "blocked" else "ask" if asks else "allow"
        )
        return self.ask if decision == "ask" else decision

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def prepare(self) -> None:
        """Load what judging needs, such as the parser, while there is nothing to judge yet."""
        if self.judges:
            observe(
                "true && true",
                None,
                _state(WORKSPACE, None, None),
                self.knowledge,
                True,
            )

    def judge(
        self,
        command: object,
        *,
        cwd: str = WORKSPACE,
        env: Env = None,
        shell_state: State = None,
        staged: bool = False,
        root: bool = False,
    ) -> Verdict:
        """The verdict on a bash text (str) or an argument vector (list). Bad input is denied and raises nothing.

        `staged`: changes of this session can be discarded, so those of the workspace are allowed.
        `root`: the system directories are the sandbox's own, as good as scratch.
        """
        if not self.judges:
            return self._unjudged(command, _state(cwd, env, shell_state))
        state, (text, words) = _state(cwd, env, shell_state), _prepared(command)
        try:
            return self._judged(text, words, state, True, staged, root)
        except (ParseError, TooComplex, RecursionError) as error:
            reason = (
                str(error)
                if not isinstance(error, RecursionError)
                else "it is nested too deeply to judge"
            )
        except Exception as error:  # a bug must never let a command through
            _log().exception("policy fault", extra={"fault": type(error).__name__})
            reason = f"it could not be understood ({type(error).__name__})"
        return self._refused(Canonical(text.text, reason), state)

    def judge_plain(
        self,
        command: object,
        *,
        cwd: str = WORKSPACE,
        env: Env = None,
        shell_state: State = None,
        staged: bool = False,
        root: bool = False,
    ) -> Verdict | None:
        """The same verdict if no parser is needed, else None. For callers that must not wait for a process."""
        if not self.judges:
            return self.judge(command, cwd=cwd, env=env, shell_state=shell_state)
        facts: dict[str, Any] = {
            "cwd": cwd,
            "env": env,
            "shell_state": shell_state,
            "staged": staged,
            "root": root,
        }
        if (known := self.recall(command, **facts)) is not None:
            return known
        state, (text, words) = _state(cwd, env, shell_state), _prepared(command)
        if words is None and not text.problem:
            return None
        try:
            verdict = self._judged(text, words, state, False, staged, root)
        except NeedsParser:
            return None
        except Exception:
            return self.judge(command, **facts)
        self.remember(verdict, command, **facts)
        return verdict

    def recall(self, command: object, **facts: Any) -> Verdict | None:
        """The verdict that was remembered for this command and these arguments of `judge`."""
        known = (
            self._remembered.get(key)
            if (key := _key(command, **facts)) is not None
            else None
        )
        return None if known is None else self._logged(known)

    def remember(self, verdict: Verdict, command: object, **facts: Any) -> None:
        """For `recall`. `judge` itself never looks there: the tests compare what it finds in different ways."""
        if (key := _key(command, **facts)) is not None and len(
            key[0]
        ) < MAX_REMEMBERED_LENGTH:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = verdict

    def _judged(
        self,
        text: Canonical,
        words: list[str] | None,
        state: ShellState,
        parsing: bool,
        staged: bool,
        root: bool,
    ) -> Verdict:
        if text.problem:
            return self._refused(text, state)
        effects, after, readings = observe(
            text.text, words, state, self.knowledge, parsing
        )
        if text.invisible:
            kind = "text.bidi" if _BIDI & set(text.text) else "text.invisible"
            effects = (*effects, Effect(kind, show(text.text[:80])))
        if root:
            effects = tuple(_in_own_system(effect) for effect in effects)
        decision, risk, reason, findings = self._decider.decide(
            text.text, effects, staged
        )
        digest = self._digest(text.text, after)
        verdict = Verdict(
            decision,
            risk,
            reason,
            findings,
            text.text,
            digest,
            str(self),
            effects,
            readings,
            after,
        )
        return self._logged(verdict)

    def _unjudged(self, command: object, state: ShellState) -> Verdict:
        """Allowed as it stands. Its risk is unknown, so it counts as high."""
        text = (
            command
            if isinstance(command, str)
            else shlex.join(command)
            if isinstance(command, list | tuple)
            else ""
        )
        if not text or "\0" in text:
            return self._refused(
                Canonical(text, "it holds a NUL byte" if text else "it is no command"),
                state,
            )
        digest = self._digest(text, state)
        return self._logged(
            Verdict(
                "allow", "high", UNJUDGED, (), text, digest, str(self), (), (), state
            )
        )

    def _refused(self, text: Canonical, state: ShellState) -> Verdict:
        reason = f"This cannot be judged: {text.problem}."
        finding = Finding("text.refused", "deny", "blocked", reason)
        digest = self._digest(text.text, state)
        return self._logged(
            Verdict(
                "deny",
                "blocked",
                reason,
                (finding,),
                text.text,
                digest,
                str(self),
                (),
                (),
                state,
            )
        )

    def _digest(self, text: str, state: ShellState) -> str:
        return tables.digest(f"{self.version}\0{state.cwd}\0{text}")

    def _logged(self, verdict: Verdict) -> Verdict:
        log = (
            _log() if "logging" in sys.modules else None
        )  # else nobody has set up a log
        if log and log.isEnabledFor(20):
            extra = {
                name: getattr(verdict, name)
                for name in ("decision", "risk", "policy", "digest")
            }
            extra["rules"] = [rule.id for rule in verdict.rules]
            log.info(
                "%s %s %s",
                verdict.decision,
                verdict.risk,
                verdict.canonical[:200],
                extra=extra,
            )
        return verdict


def check_knowledge(path: str) -> None:
    """Check a knowledge file alone: its keys, effects and roles, and its examples under the default policy."""
    from .examples import check_entry
    from .schema import check

    check(read_toml(Path(path)), path)
    source = str(Path(path).absolute())
    policy = Policy.parse(
        f'[policy]\nname = "check"\nextends = "default"\nknowledge = [{json.dumps(source)}]',
        path,
    )
    for entry in policy.knowledge.every():
        if entry.source == source:
            check_entry(policy, entry)


def _in_own_system(effect: Effect) -> Effect:
    """In a sandbox with a root of its own a change of the system ends with the sandbox, also one that plants a hook."""
    planted = effect.path_class == "exec_hook" and effect.target.startswith(SYSTEM)
    return (
        replace(effect, path_class="scratch")
        if planted or effect.path_class == "system"
        else effect
    )


def _log() -> Any:
    import logging

    log = logging.getLogger("belljar.policy")
    log.handlers = log.handlers or [logging.NullHandler()]
    return log


def _state(
    cwd: str, env: Mapping[str, str] | None, given: ShellState | None
) -> ShellState:
    state = given.detached() if given is not None else ShellState.fresh(cwd, None)
    state.env.update({str(name): str(value) for name, value in (env or {}).items()})
    return state


def _key(
    command: object,
    cwd: str = WORKSPACE,
    env: Env = None,
    shell_state: State = None,
    staged: bool = False,
    root: bool = False,
) -> _Key | None:
    """All that a verdict depends on, if that is little."""
    if type(command) is not str or env or shell_state is not None:
        return None
    return (command, cwd, staged, root)


def _prepared(command: object) -> tuple[Canonical, list[str] | None]:
    """The text that is judged, and its words if no parser is needed."""
    if isinstance(command, Sequence) and not isinstance(
        command, str | bytes | bytearray
    ):
        return canonical_argv(list(command)), [
            word for word in command if isinstance(word, str)
        ]
    text = canonical(command)
    return text, plain_words(text.text)


def _find(name_or_path: "str | Path") -> RuleFile:
    name = str(name_or_path)
    if name in BUILT_IN:
        return read_rules(policies_directory() / f"{name}.toml")
    path = Path(name)
    if not path.is_file():
        raise PolicyError(
            f"no policy {name!r}: give a file or one of {', '.join(BUILT_IN)}"
        )
    return read_rules(path)


def _with_bases(file: RuleFile) -> list[RuleFile]:
    """A file and those that it extends."""
    files = [file]
    seen = {file.name}
    while files[-1].extends:
        base = files[-1].extends
        if base in seen or base not in BUILT_IN:
            raise PolicyError(
                f"{file.source}: extends {base!r}, which is not one of {', '.join(BUILT_IN)}"
            )
        seen.add(base)
        files.append(_find(base))
    return files
