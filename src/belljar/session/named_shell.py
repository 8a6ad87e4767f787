"""Named shells: commands that share a directory, variables, functions and options. The caller runs one at a time.

A named shell is no process. Each of its commands is a bash of its own that first restores what the command before it
left (a file in /tmp of the sandbox), and saves it when it ends. So a shell needs no connection: it survives a restart
of its host, and a command that is killed or times out leaves it as it was. Jobs end with their command. On a terminal
(`pty=True`) each command has a new one, with the settings (`stty`) that the command before it left.

The policy judges the command's own text, with the directory and variables that the shell has.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from belljar.errors import BelljarError
from belljar.session.bash_channel import BashState
from belljar.session.commands import Commands, Request, encoded, environment, flags_of
from belljar.session.shell_judging import ShellJudge

if TYPE_CHECKING:
    from belljar.session.options import Options

PLACE = "/tmp/.belljar-shells"
SCRIPT = r"""
__bj=/tmp/.belljar-shells/$1 __bj_text=$2
set --
mkdir -p "$__bj" 2>/dev/null
[ -f "$__bj/state" ] && . "$__bj/state" 2>/dev/null
[ -f "$__bj/cwd" ] && IFS= read -r -d '' __bj_cwd <"$__bj/cwd" && cd -- "$__bj_cwd" 2>/dev/null
[ -t 0 ] && [ -s "$__bj/stty" ] && stty "$(<"$__bj/stty")" 2>/dev/null
__bj_save() {
  local __bj_status=$1 __bj_options=$2 __bj_name
  set +e +u +x
  {
    for __bj_name in $(compgen -v); do
      case $__bj_name in
        __bj*|BASH*|FUNCNAME|PIPESTATUS|LINENO|RANDOM|SRANDOM|SECONDS|EPOCH*|DIRSTACK) ;;
        GROUPS|PPID|UID|EUID|SHELLOPTS|_|SHLVL|PWD|OLDPWD) ;;
        *) declare -p -- "$__bj_name" ;;
      esac
    done
    declare -f | grep -v '^$'
    alias -p
    shopt -p
    printf '%s\n' "$__bj_options"
  } >"$__bj/state.new" 2>/dev/null && mv -f "$__bj/state.new" "$__bj/state"
  printf '%s\0' "$PWD" >"$__bj/cwd.new" 2>/dev/null && mv -f "$__bj/cwd.new" "$__bj/cwd"
  [ -t 0 ] && stty -g >"$__bj/stty" 2>/dev/null
  exit "$__bj_status"
}
trap '__bj_save "$?" "$(set +o)"' EXIT
unset -v IFS __bj_cwd; IFS=$' \t\n'
eval "$__bj_text"
"""


class NamedShell:
    """`shell = box.named_shell("a"); held = await box.hold(await shell.admit("cd src"), tag)`."""

    def __init__(self, name: str, commands: Commands) -> None:
        self.name = name
        self._commands = commands
        self._judge = ShellJudge(commands.judge, commands.inside)
        self._judge.unsure = True  # an earlier host may have run commands in it

    async def admit(self, command: str, options: Options) -> Request:
        """Judge a command of this shell; the request restores and saves the shell around it."""
        verdict = await self._judge.admit(command, await self._reported())
        argv = [
            "bash",
            "--noprofile",
            "--norc",
            "-c",
            SCRIPT,
            "bash",
            self.name,
            verdict.canonical,
        ]
        env = {**self._commands.inside.env, **(options.get("env") or {})}
        cwd = self._commands.resolve_cwd(options.get("cwd"), anywhere=True)
        return Request(
            verdict,
            tuple(encoded(word) for word in argv),
            flags_of(argv, options),
            encoded(cwd),
            environment(env, options),
            options,
            admitted_by=self._commands,
        )

    def learn(self, request: Request) -> None:
        """The command of this request has run."""
        self._judge.learn(request.verdict)

    async def _reported(self) -> BashState | None:
        with contextlib.suppress(BelljarError, UnicodeDecodeError):
            files = self._commands.inside.files
            return BashState(
                (await files.read(f"{PLACE}/{self.name}/cwd", length=4096))
                .rstrip(b"\0")
                .decode()
            )
        return None
