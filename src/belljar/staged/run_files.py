"""Which files the host would run by itself once they are applied: hooks, editor tasks, agents' settings, CI jobs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from belljar.patterns import lazy_pattern
from belljar.workspace import git_settings

Read = Callable[[], bytes | None]

DIRECTORIES = (
    ".husky", ".githooks", ".claude", ".cursor", ".gemini", ".vscode", ".idea", ".devcontainer", ".circleci",
    ".woodpecker", ".buildkite", ".forgejo", ".gitea", ".ci",
)  # fmt: skip
# HEAD: any directory with HEAD, objects and refs is a git directory, whose settings git follows.
_ANYWHERE = lazy_pattern(
    r"(?:.*/)?(?:HEAD|\.envrc|\.exrc|\.g?vimrc|\.nvimrc|\.nvim\.lua|\.gdbinit|\.lldbinit|\.mcp\.json|Jenkinsfile|\.gitlab-ci\.ya?ml"
    r"|\.travis\.ya?ml|\.drone\.ya?ml|azure-pipelines\.ya?ml|bitbucket-pipelines\.ya?ml|\.pre-commit-config\.ya?ml"
    rf"|(?:{'|'.join(map(re.escape, DIRECTORIES))})/.*|\.github/(?:workflows|actions)/.*)"
)
_HARMLESS_BELOW = lazy_pattern(r"\.vscode/(?:extensions|launch)\.json|\.idea/(?!startup|runConfigurations|tools).*")
# Files in a git directory that git only stores. Any other may name a program or another directory.
_STORED = lazy_pattern(
    r"(?:objects|refs|logs|info|worktrees/[^/]+/(?:logs|refs)|lfs|rr-cache)(?:/.*)?|HEAD|ORIG_HEAD|FETCH_HEAD|MERGE_\w+|REBASE_HEAD"
    r"|CHERRY_PICK_HEAD|REVERT_HEAD|AUTO_MERGE|COMMIT_EDITMSG|SQUASH_MSG|MERGE_MSG|TAG_EDITMSG|index|packed-refs|shallow"
    r"|description|gc\.log|.*\.lock|rebase-(?:merge|apply)(?:/.*)?|sequencer(?:/.*)?|hooks/[^/]*\.sample|hooks|branches"
)
_HOOKS = lazy_pattern(r"/(?:hooks/.*(?<!\.sample)|commondir)$")


def runs_later(path: str, before: Read, after: Read) -> bool:
    """`before` and `after` read the file on the host and staged."""
    parts = path.split("/")
    if ".git" in parts:
        return in_git("/".join(parts[parts.index(".git") + 1 :]), before, after)
    return bool(_ANYWHERE.fullmatch(path)) and not _HARMLESS_BELOW.fullmatch(path)


def link_runs_later(path: str) -> bool:
    """Whether the target of a link at this path would be run: in place of such a directory, or anywhere in `.git`."""
    parts = path.split("/")
    return ".git" in parts or parts[-1] in (*DIRECTORIES, ".github") or bool(_ANYWHERE.fullmatch(f"{path}/_"))


def by_content(path: str) -> bool:
    """Whether its contents decide."""
    return posixpath.basename(path) in ("config", "config.worktree")


def in_git(rest: str, before: Read, after: Read) -> bool:
    if not rest:
        return after() is not None  # a file instead of the directory names another one
    if by_content(rest):
        content = after()
        return content is None or bool(_programs(content) - _programs(before()))
    if rest.startswith("modules/") and _HOOKS.search(rest):  # a submodule may be named x/objects
        return True
    return _STORED.fullmatch(re.sub(r"^modules/[^/]+/", "", rest)) is None


def _programs(content: bytes | None) -> set[object]:
    if content is None:
        return set()
    settings = git_settings.that_run(content)
    return {content} if settings is None else set(settings)
