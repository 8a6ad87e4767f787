"""Files in a git directory: which of them git only stores, and which may make it run something.

Git's list of the latter grows with each release, so the list here is of the former: any other counts.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import partial

from belljar.patterns import lazy_pattern
from belljar.runs_later import values
from belljar.runs_later.table import is_no_hook
from belljar.runs_later.values import Reader

STORES = frozenset(("objects", "refs", "logs", "lfs", "rr-cache", "info"))
"""Directories where git only stores."""
_STORED = lazy_pattern(
    r"objects/(?!info/(?:http-)?alternates$).*|(?:refs|logs|lfs/(?:objects|cache|tmp|locks)|rr-cache)/.*"
    r"|info/(?:exclude|attributes|refs|sparse-checkout|packs|commit-graphs?)"
    r"|HEAD|ORIG_HEAD|FETCH_HEAD|MERGE_\w+|REBASE_HEAD|CHERRY_PICK_HEAD|REVERT_HEAD|AUTO_MERGE|BISECT_\w+|NOTES_MERGE_\w+"
    r"|(?:COMMIT|TAG|MERGE|NOTES|EDIT_DESCRIPTION)_EDITMSG|EDIT_DESCRIPTION|SQUASH_MSG|MERGE_MSG|addp-hunk-edit\.diff"
    r"|index|sharedindex\.[0-9a-f]+|packed-refs|shallow|description|gc\.(?:log|pid)|gitdir|locked|.*\.lock"
    r"|rebase-merge/(?:head-name|onto|orig-head|interactive|end|msgnum|message|message-squash|message-fixup|done|author-script"
    r"|git-rebase-todo\.backup|rewritten-(?:list|pending)|stopped-sha|amend|current-fixups|drop_redundant_commits"
    r"|keep_redundant_commits|no-reschedule-failed-exec|reschedule-failed-exec|patch|autostash|squash-onto|quiet|verbose"
    r"|signoff|cdate_is_adate|ignore_date|update-refs|refs-to-delete|force-rebase|ref_stash|labels)"
    r"|rebase-apply/(?:\d+|patch|info|msg|msg-clean|final-commit|head-name|onto|orig-head|abort-safety|applying|rebasing|next|last"
    r"|threeway|utf8|keep|keepcr|messageid|scissors|sign|quiet|apply-opt|quoted-cr|no_inbody_headers|rewritten|stopped-sha"
    r"|autostash|dirtyindex|author-script|original-commit|rerere-autoupdate|allow_rerere_autoupdate)"
    r"|sequencer/(?:head|abort-safety)"
)
_TODO = ("rebase-merge/git-rebase-todo", "sequencer/todo")
_DIRECTORIES = (
    "hooks",
    "modules",
    "worktrees",
    "rebase-merge",
    "sequencer",
    "remotes",
    "branches",
)
_SETTINGS = ("config", "config.worktree")


def reader(
    rest: str, is_git_directory: Callable[[str], bool], *, link: bool = False
) -> Reader | None:
    """How to read a file of a git directory; None if git only stores it. `rest`: its path there. `is_git_directory`:
    whether a path there is a submodule's git directory: their names may have slashes."""
    if link:
        return values.anything
    if rest.startswith("worktrees/") and rest.count("/") > 1:
        return reader(rest.split("/", 2)[2], is_git_directory)
    if rest.startswith("modules/"):
        return _in_modules(rest, is_git_directory)
    if rest in _SETTINGS:
        return values.git
    if rest in _TODO:
        return values.todo
    if rest.startswith("hooks/"):
        return None if is_no_hook(posixpath.basename(rest)) else values.anything
    return None if _STORED.fullmatch(rest) else values.anything


def _in_modules(rest: str, is_git_directory: Callable[[str], bool]) -> Reader | None:
    parts = rest.split("/")
    repositories = [
        path
        for end in range(2, len(parts))
        if is_git_directory(path := "/".join(parts[:end]))
    ]
    for path in repositories:
        if (
            found := reader(
                rest[len(path) + 1 :], partial(_below, is_git_directory, path)
            )
        ) is not None:
            return found
    if repositories:
        return None
    # Not a git directory yet: whatever could run there counts.
    return (
        values.anything
        if "hooks" in parts[2:-1] or parts[-1] in (*_SETTINGS, "commondir")
        else None
    )


def _below(is_git_directory: Callable[[str], bool], above: str, path: str) -> bool:
    return is_git_directory(f"{above}/{path}")


def is_gits_own(rest: str) -> bool:
    """Whether only git has a file of this name, in a directory that also holds other files."""
    return rest in (*_SETTINGS, "commondir") or rest.partition("/")[0] in _DIRECTORIES


def is_settings(path: str) -> bool:
    return posixpath.basename(path) in _SETTINGS
