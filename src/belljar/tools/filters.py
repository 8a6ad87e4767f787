"""What a tool's configuration may forbid beyond the policy: programs and environment variables, by pattern."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from pydantic import Field

from belljar.errors import BelljarError
from belljar.policy import Verdict
from belljar.tools.parameters import Config


class CommandFiltered(BelljarError):
    code = "command_filtered"
    exit_status = 126


class FilterConfig(Config):
    allowed_commands: tuple[str, ...] | None = None
    """Programs that may run, as names or patterns; None: all."""
    blocked_commands: tuple[str, ...] = ()
    """Programs that may not."""
    allowed_environment: tuple[str, ...] = ("*",)
    """Variables that a call may set."""
    blocked_environment: tuple[str, ...] = Field(
        default=(
            "LD_PRELOAD",
            "LD_AUDIT",
            "BASH_ENV",
            "ENV",
            "PROMPT_COMMAND",
            "BASH_FUNC_*",
        )
    )
    """Variables that a call may not set. By default those that make a program run other code."""

    def check(self, verdict: Verdict) -> None:
        """Check every program that the command would run, also inside pipes and substitutions."""
        for program in programs(verdict):
            unlisted = self.allowed_commands is not None and not _matches(
                program, self.allowed_commands
            )
            if unlisted or _matches(program, self.blocked_commands):
                raise CommandFiltered(
                    f"Command not allowed by configuration: {program}"
                )

    def sift(self, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """The variables that may be set, and the names of the others."""
        kept = {
            name: value
            for name, value in environment.items()
            if _matches(name, self.allowed_environment)
            and not _matches(name, self.blocked_environment)
        }
        return kept, sorted(set(environment) - set(kept))


def programs(verdict: Verdict) -> list[str]:
    named = {
        effect.program or effect.target
        for effect in verdict.effects
        if effect.kind.startswith("exec")
    }
    return sorted(name.rpartition("/")[2] for name in named)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
