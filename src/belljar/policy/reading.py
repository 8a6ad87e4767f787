"""Read one call of a program by its entry: give each argument its role, and let each role emit its effects."""

import re
from collections.abc import Callable
from itertools import chain, takewhile
from typing import Any

from . import expressions
from .call import Call, Options
from .knowledge import Entry, When
from .marks import (
    ATOM,
    ENCODED,
    FILE,
    NETWORK,
    PRIVATE,
    SECRET,
    SENSITIVE,
    STAR,
    UNKNOWN,
    has,
    plain_text,
    unglob,
)
from .paths import WORKSPACE
from .project_files import judge_written
from .shellstate import BASE_ENV

PRINTS = {
    "word": ATOM + "\n",
    "file": FILE,
    "network": NETWORK,
    "unknown": UNKNOWN,
    "secret": SECRET,
    "nothing": "",
    "private": SENSITIVE,
    "everything": STAR + "\n",
    "one": "1\n",
    "workspace": WORKSPACE + "\n",
    "gitdir": ".git\n",
    "user": BASE_ENV["USER"] + "\n",
    "disks": f"/dev/sda {ATOM} /\n/dev/sda {ATOM} {WORKSPACE}\n",
}
# What a role does with one argument; or with several, and a parameter (`code:sql`).
WORD_ROLES: dict[str, Callable[["Reading", str], object]] = {}
WORDS_ROLES: dict[str, Callable[["Reading", list[str], str], object]] = {}
Filter = Callable[[Call, Options, str], str | None]
FILTERS: dict[str, Filter] = {}
_AFTER_READING = (
    "write",
    "destination",
    "append",
    "truncate",
    "tee",
    "save",
)  # roles that use what others have read


class Reading:
    def __init__(
        self, call: Call, entry: Entry, outer: "Reading | None" = None
    ) -> None:
        self.call = call
        self.entry = entry
        self.content = ""
        self.inputs = 0
        self.output = ""
        self.sent = self.target = self.mode = self.destination = ""
        self.sources: list[tuple[str, str | None]] = []
        self.rest: list[str] = []
        self.options = Options()
        self.described = bool(
            entry.destroys
        )  # whether the entry says what the verb does
        self.flags: list[str] = list(outer.flags) if outer else []
        self.settings: str = entry.settings or (outer.settings if outer else "")
        self.text = " ".join(plain_text(arg) for arg in call.args)

    def run(self) -> str | None:
        call = self.call
        entry = self.entry
        call.machine.record_reading(f"{call.text()}  ←  {entry.name} in {entry.source}")
        if "bundled" in entry.traits and re.fullmatch(
            r"[A-Za-z]+", "".join(call.args[:1])
        ):  # tar xzf
            call.args = [f"-{call.args[0]}", *call.args[1:]]
        options = call.options(entry.takes, entry.posix)
        self.flags += [
            flag for flag, names in entry.flags.items() if options.has(*names.split())
        ]
        self.rest = options.rest
        self.options = options
        asks = "help" in options.flags or (
            "version" in options.flags and not options.rest
        )
        if asks or (entry.unless and expressions.search(entry.unless, self.text)):
            self.described = True
            return self.printed(entry.prints, options)
        verb = self._verb(options) if entry.verbs else None
        acts = self._acts(options, verb is None)
        for act, words in sorted(acts, key=lambda one: one[0] in _AFTER_READING):
            self.apply_role(act, words)
        if (
            entry.stdin
            and call.stdin.strip()
            and not any(re.match("code|script", act) for act, _ in acts)
        ):
            self.apply_role(entry.stdin, [unglob(call.stdin)])
        if entry.stdin == "code:sql" and expressions.holds(
            "dropping_file", call.feed.source
        ):
            call.emit("data.drop", call.feed.source)
        printed = self._effects(options)
        if self.sent or has(self.target, PRIVATE + ENCODED):
            call.send(self.sent + self.target, self.target)
        judge_written(call, entry.runs)
        if verb is not None:
            verb.call.state = call.state  # an option may have changed the directory
        out = (
            self.printed(printed or entry.prints, options)
            if verb is None
            else verb.run()
        )
        self.described = self.described and (
            verb is None or not verb.entry.verbs or verb.described
        )
        return out

    def _acts(self, options: Options, last: bool) -> list[tuple[str, list[str]]]:
        """What options and operands do, each with its words. `last`: no verb takes the operands."""
        acts = [
            (act, [text])
            for names, act in self.entry.options.items()
            for text in options.all(*names.split())
        ]
        roles = self.entry.operands
        if any(
            roles.endswith(f" {act}") for act, _ in acts
        ):  # `cp -t there a b`: an option gave the destination
            roles = roles.rpartition(" ")[0]
        if last and options.rest != ["-"]:
            acts += self.assign_roles(roles, options.rest)
        self.destination = (
            acts[-1][1][-1] if acts and acts[-1][0] == "destination" else ""
        )
        hosts = (
            words[0] for act, words in acts if act in ("fetch", "download", "host")
        )
        self.target = next(filter(re.compile("[.:]").search, hosts), "")
        return acts

    def _verb(self, options: Options) -> "Reading | None":
        """The entry of the verb that the first words match. A word before it may be the value of an unlisted option."""
        words = [plain_text(word) for word in options.rest]
        starts = [
            at
            for at in range(min(3, len(words)))
            if options.after_flag(words[:at], self.call.args)
        ]
        named_ones = (
            (at, *one) for at in starts for one in self.entry.verbs if one[0] != ("*",)
        )
        others = ((0, *one) for one in self.entry.verbs if one[0] == ("*",))
        for start, pattern, entry in chain(named_ones, others):
            length = words_matched(pattern, words[start:]) if words else None
            if length is None:
                continue
            taken = options.rest[start : start + length]
            args = list(self.call.args)
            for word in taken:
                args.remove(word)
            args = options.rest[start + length :] if self.entry.posix else args
            inner = Call(
                self.call.machine, self.call.name, args, self.call.state, self.call.feed
            )
            inner.original = self.call.original  # messages name the verb
            self.described |= pattern != ("*",)
            return Reading(inner, entry, self)
        return None

    def _effects(self, options: Options) -> str:
        """Emit the effects of `effect`, `destroys` and `when`. Returns what `when` says that it prints."""
        entry = self.entry
        printed = ""
        for effect in filter(None, (entry.effect, self._destroys())):
            self.emit(effect)
        for when in entry.when:
            if not (matches := self._matches(when, options)):
                continue
            if when.effect:
                self.emit(when.effect)
            for match in matches if when.role else []:
                self.apply_role(
                    when.role, [" ".join(group for group in match.groups() if group)]
                )
            printed = when.prints or printed
        return printed

    def _destroys(self) -> str:
        """The effect in `destroys`, if a verb or an argument is destructive and it is no rehearsal."""
        if not self.entry.destroys or expressions.holds("rehearsal", self.text):
            return ""
        words = [plain_text(word) for word in self.options.rest[:5]]
        verbs = takewhile(lambda word: not expressions.is_a("reading", word), words)
        places = (
            ("destructive", verbs),
            ("destructive_argument", map(plain_text, self.call.args)),
        )
        found = any(
            expressions.is_a(kind, one) for kind, words in places for one in words
        )
        return self.entry.destroys if found else ""

    def _matches(self, when: When, options: Options) -> list[Any]:
        excepted = when.unless and expressions.search(when.unless, self.text)
        if excepted or (when.flag and not options.has(*when.flag.split())):
            return []
        if when.arg:
            return [
                one
                for arg in self.call.args
                if (one := expressions.search(when.arg, plain_text(arg)))
            ]
        texts = [self.text]
        if when.given:
            files = self.call.state.files.items() if when.files else ()
            named_ones = [text for path, text in files if re.search(when.files, path)]
            texts.append("\n".join([self.call.given_text(), *named_ones]))
        if not when.role:
            return [
                one
                for text in texts
                if (one := expressions.search(when.given or when.args, text))
            ]
        return [
            one
            for text in texts
            for one in expressions.find_all(when.given or when.args, text)
        ]

    def emit(self, text: str) -> None:
        """Emit effects that are written as in knowledge files: kind, @path_class, flags."""
        for one in text.split(","):
            kind, *words = one.split()
            kinds = [word[1:] for word in words if word[0] == "@"]
            flags = frozenset(word for word in words if word[0] != "@")
            self.call.machine.emit(
                kind, self.call.text(), "".join(kinds), flags, self.call.name
            )

    @staticmethod
    def assign_roles(roles: str, words: list[str]) -> list[tuple[str, list[str]]]:
        """Operands with their roles: `skip run…` runs the rest, `copy* destination` copies all but the last."""
        found = []
        names = roles.split()
        for index, name in enumerate(names):
            later = len(names) - index - 1
            if name.endswith("*"):
                taken = words[: len(words) - later] if later else words
                found += [(name[:-1], [word]) for word in taken]
                words = words[len(taken) :]
            elif name.endswith("…"):
                return [*found, (name[:-1], words)] if words else found
            elif words:
                found.append((name, words[:1]))
                words = words[1:]
        return found

    def apply_role(self, name: str, words: list[str]) -> None:
        base, _, parameter = name.partition(":")
        if base in WORD_ROLES:
            WORD_ROLES[base](self, words[0])
        else:
            WORDS_ROLES[base](self, words, parameter)

    def add_content(self, text: str) -> None:
        """The call reads one more input."""
        self.content = self.content + text
        self.inputs += 1

    def add_sent(self, text: str) -> None:
        """The call sends one more text."""
        self.sent += text or " "

    def printed(self, what: str, options: Options) -> str | None:
        text = self.content if self.inputs else self.call.stdin
        if what in FILTERS:
            return FILTERS[what](self.call, options, text)
        return {"content": text, "command-output": self.output}.get(
            what, PRINTS.get(what)
        )


def words_matched(pattern: tuple[str, ...], words: list[str]) -> int | None:
    """How many words a verb's pattern matches; None if it does not match. The patterns are in policies/README.md."""
    at = 0
    for index, piece in enumerate(pattern):
        if piece == "**":
            rest = pattern[index + 1 :]
            ends = (
                skip + taken
                for skip in range(6)
                if (taken := words_matched(rest, words[at + skip :])) is not None
            )
            found = next(ends, None)
            return None if found is None else at + found
        if piece == "*" and len(pattern) == 1:
            return 0
        if at >= len(words) or not any(
            _word_matches(one, words[at]) for one in piece.split("|")
        ):
            return None
        at += 1
    return at


def _word_matches(piece: str, word: str) -> bool:
    if piece.startswith("*"):
        return word.endswith(piece[1:])
    return word.startswith(piece[:-1]) if piece.endswith("*") else word == piece
