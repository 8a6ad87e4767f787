"""`belljar completion bash|zsh|fish`: scripts made from the parser itself, so they never lag behind it."""

from __future__ import annotations

import argparse
from argparse import Namespace

from belljar.surfaces.cli import console
from belljar.surfaces.cli.main import build

Words = dict[str, list[str]]
"""What may follow each (sub-)command."""


def completion(args: Namespace) -> int:
    words = _words(build(), "")
    console.say({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](words))
    return 0


def _words(parser: argparse.ArgumentParser, path: str) -> Words:
    found: Words = {path: []}
    for action in parser._actions:
        found[path] += [option for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            found[path] += list(action.choices)
            for name, sub in action.choices.items():
                found |= _words(sub, f"{path} {name}".strip())
        elif action.choices and not action.option_strings:
            found[path] += [str(choice) for choice in action.choices]
    return found


def _bash(words: Words) -> str:
    cases = "\n".join(f'    "{path}") words="{" ".join(found)}" ;;' for path, found in words.items())
    return f"""_belljar() {{
  local path="" word words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    [[ $word == -* ]] && continue
    case "${{path:+$path }}$word" in
    {" | ".join(f'"{path}"' for path in words if path)}) path="${{path:+$path }}$word" ;;
    esac
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _belljar belljar"""


def _zsh(words: Words) -> str:
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(words)}"


def _fish(words: Words) -> str:
    lines = ["complete -c belljar -f"]
    for path, found in words.items():
        names = [name for name in found if not name.startswith("--")]
        seen = f"__fish_seen_subcommand_from {path.split()[-1]}" if path else "__fish_use_subcommand"
        lines += [f"complete -c belljar -n '{seen}' -a '{' '.join(names)}'"] if names else []
        lines += [f"complete -c belljar -n '{seen}' -l {option[2:]}" for option in found if option.startswith("--")]
    return "\n".join(lines)
