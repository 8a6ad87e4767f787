"""Examples for each command's help: what to type, and what it does."""

from __future__ import annotations

EXAMPLES = {
    "run": """
belljar run 'python3 -V; ls | head -3'         one command in a throwaway container, bash text
belljar run --timeout 60 -- make -j2 all       a program and its arguments, no shell
belljar run -it bash                           a shell inside; on a terminal -it is the default
belljar shell                                  safe mode: a prompt in the sandbox, every line checked first
belljar check 'curl x | sh'                    what the policy would say, nothing runs
id=$(belljar session start); belljar run --session $id 'echo hi'; belljar session stop $id
""",
    "shell": """
belljar shell --staged                         a prompt; :diff, :apply and :discard see to what it changes
belljar shell --allow api.example.com          with a door to one host
printf 'cd src\\nls\\n' | belljar shell          lines of a script, each judged
""",
    "check": """
belljar check 'rm -rf /'                       the verdict, the rules and their reasons
belljar check --policy strict -- make all      under another policy
belljar check --explain 'cat .env'             with the effects that were found
""",
    "session start": """
belljar session start --name work              then: belljar run --session work 'make'
belljar session start --staged --lease 8h      changes kept aside; ends 8 hours after the last visit
""",
    "session list": "belljar session list --json                    with each session's notes",
    "session stop": "belljar session stop work                      by its name, or several by their ids",
    "ps": "belljar ps                                     what runs, and what is staged",
    "stats": "belljar stats --once work                      one line, for scripts",
    "start": """
belljar start --session work 'npm run dev'     prints shell_…, for logs, wait and kill
belljar start --session work -t bash           with a terminal, for attach
""",
    "shells": "belljar shells --session work                  those of one session",
    "logs": """
belljar logs -f shell_1a2b3c4d                 follow it until it ends
belljar logs -n 20 shell_1a2b3c4d              its last 20 lines
""",
    "attach": "belljar attach shell_1a2b3c4d                  started with `belljar start -t`",
    "wait": "belljar wait --timeout 60 shell_1a2b3c4d       its status, or 124",
    "kill": "belljar kill shell_1a2b3c4d",
    "cp": """
belljar cp notes.txt work:/tmp/                into the session work
belljar cp work:build/app .                    out of it; paths begin at /workspace
belljar cp work:/tmp/log - | grep error        to stdout
""",
    "forward": """
belljar forward work 8000                      prints http://127.0.0.1:PORT; Ctrl+C ends it
belljar forward work 9000:8000                 at port 9000 here
""",
    "changes": "belljar changes src                            only below src",
    "diff": """
belljar diff --stat                            how much, file by file
belljar diff src/app.py | less                 one file
""",
    "apply": """
belljar apply                                  everything
belljar apply -p src                           below src, asking hunk by hunk
belljar apply --undo                           take the last apply back
""",
    "discard": "belljar discard src/app.py                     only this; without a path everything",
    "checkpoint": "belljar checkpoint before-upgrade              of the one staged session that runs here",
    "rollback": "belljar rollback before-upgrade                without a name to the last",
    "tools": "belljar tools --format openai                  schemas for an API call",
    "call": """
belljar call Bash command='ls -l'              as an agent would
belljar call read_file '{"path": "README.md", "limit": 5}'
""",
    "mcp": """
belljar mcp --workspace .                      what an MCP client's settings name
belljar mcp --tools bash,files --staged        more tools; changes are kept aside
belljar mcp --http 127.0.0.1:8808              for clients that speak HTTP; prints the token
""",
    "images list": "belljar images list --engine oci",
    "images build": "belljar images build dev                       minutes; the first use does it too",
    "images import": "belljar images import mygo.tar --name mygo      then: belljar run --engine oci --image mygo …",
    "images remove": "belljar images remove mygo",
    "images prune": "belljar images prune",
    "doctor": "belljar doctor --engine oci                    of one engine",
    "prune": """
belljar prune                                  what is dead; staged changes and caches are only listed
belljar prune --caches --staged                these too, after asking
""",
    "audit show": """
belljar audit show --since 1h --kind verdict   what was judged in the last hour
belljar audit show --follow --session work
""",
    "audit verify": "belljar audit verify",
    "network explain": "belljar network explain python git             the hosts behind --allow-preset",
    "policy list": "belljar policy list",
    "policy show": "belljar policy show mine.toml                  a file of yours, with what it extends",
    "policy explain": "belljar policy explain --policy mine.toml 'deployctl destroy web'",
    "policy test": """
belljar policy test mine.toml deployctl.toml   do the examples in these files hold?
echo '{"command": "make all", "expect": "deny"}' > cases.jsonl; belljar policy test --policy strict cases.jsonl
""",
    "help": "belljar help session start",
    "version": "belljar version --json",
    "config": "belljar config",
    "schema": "belljar schema run                             of `belljar run --json`",
    "completion": "source <(belljar completion bash)              for this shell; in ~/.bashrc for all",
    "man": "belljar man | man -l -",
}


def of(command: str) -> str:
    """The examples of a command. A family such as `session` shows those of all its commands."""
    texts = [text for name, text in EXAMPLES.items() if f"{name} ".startswith(f"{command} ")]
    return "\n".join(["examples:", *(f"  {line}" for line in "\n".join(texts).splitlines() if line)])
