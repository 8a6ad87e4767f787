"""What a policy file says beside its rules: knowledge, exceptions, and the network's door; and how layers combine.

The files that the operator named are trusted; whatever is laid on top may only tighten.
"""

import fnmatch
import re
from collections.abc import Iterable

from belljar.records import record

from .effects import Effect


@record
class Allow:
    """An exception: what it names is allowed although a rule says otherwise, for a reason that shows in the verdict."""

    reason: str
    rule: frozenset[str] = frozenset()
    program: frozenset[str] = frozenset()
    path: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    source: str = ""

    def covers(self, rule: str, effect: Effect) -> bool:
        if (self.rule and rule not in self.rule) or (
            self.program and not self.program & {effect.program, *effect.trail}
        ):
            return False
        if self.path and not any(inside(effect.target, pattern) for pattern in self.path):
            return False
        hosts = re.findall(r"(?:^|[@/\s])((?:[\w-]+\.)+[\w-]+)", effect.target) if self.host else []
        return not self.host or any(reaches(pattern, host) for pattern in self.host for host in hosts)


def inside(path: str, pattern: str) -> bool:
    """Whether a path is the one that is named, below it (`/srv/data/**`), or of its shape."""
    if pattern.endswith("/**"):
        return path == pattern[:-3] or path.startswith(pattern[:-2])
    return fnmatch.fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")


def reaches(pattern: str, host: str) -> bool:
    """Whether a host, or a narrower pattern, lies within a pattern: `*.example.net`, `api.example.com:8443`, `*`."""
    name, _, port = pattern.lower().partition(":")
    other, _, wanted = host.lower().partition(":")
    if port and port != wanted:
        return False
    return name in ("*", other) or (name.startswith("*.") and other.removeprefix("*").endswith(name[1:]))


def narrowed(ours: Iterable[str] | None, theirs: Iterable[str] | None) -> tuple[str, ...] | None:
    """The hosts that both lists let through; a list that is not given does not narrow the other."""
    if ours is None or theirs is None:
        return tuple(ours) if ours is not None else tuple(theirs) if theirs is not None else None
    first, second = list(ours), list(theirs)
    both = [one for one in first if any(reaches(other, one) for other in second)]
    return tuple(dict.fromkeys(both + [one for one in second if any(reaches(other, one) for other in first)]))
