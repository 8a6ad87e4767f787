"""Git settings: only those that cannot run a program are harmless."""

from pathlib import Path

import pytest
from tests.runs_later.conftest import git

from belljar.runs_later.watch import Watch


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ('[remote "o"]\n\turl = https://there/x.git\n', False),
        (
            '[remote "o"]\n\turl = git@there:/x.git\n\tpushurl = ssh://there/x.git\n',
            False,
        ),
        ('[remote "o"]\n\turl = there\n', True),
        ('[remote "o"]\n\turl = https://there/x.git\n\tpushurl = ./evil.git\n', True),
        ('[remote "o"]\n\turl = ./x:y\n', True),
        ('[remote "o"]\n\turl = file:///evil.git\n', True),
        ('[remote "o"]\n\turl = evil://there\n', True),
        ('[url "./evil.git"]\n\tpushInsteadOf = https://there/\n', True),
        ('[url "./evil.git"]\n\tinsteadOf = https://there/\n', True),
        ("[user]\n\tname = me\n", False),
        ("[core]\n\tfsmonitor = evil\n", True),
        ("[core] hooksPath=evil\n", True),
        ("[alias]\n\tst = !evil\n", True),
        ('[filter "x"]\n\tclean = evil\n', True),
        ("[include]\n\tpath = evil\n", True),
        ('[remote "o"]\n\turl = ext::evil\n', True),
        ("[CORE]\n\tSSHCOMMAND = evil\n", True),
        ("[diff]\n\texternal = evil\n", True),
        ("[interactive]\n\tdiffFilter = evil\n", True),
        ("[core]\n\talternateRefsCommand = evil\n", True),
        ('[gpg "ssh"]\n\tdefaultKeyCommand = evil\n', True),
        ("[sendemail]\n\ttoCmd = evil\n", True),
        ("[core]\n\tsomethingOfTomorrow = evil\n", True),
        (
            '[remote "o"]\n\turl = there:x\n[branch "main"]\n\tremote = o\n\tmerge = refs/heads/main\n',
            False,
        ),
        ('[branch "main"]\n\tremote = .\n\tmerge = refs/heads/other\n', False),
        ('[branch "main"]\n\tremote = evil.git\n', True),
        ('[branch "main"]\n\tpushRemote = ./evil.git\n', True),
        ('[branch "main"]\n\tpushRemote = ext::evil\n', True),
        ("[remote]\n\tpushDefault = evil.git\n", True),
        ('[submodule "x"]\n\tactive = true\n\turl = https://there/x.git\n', False),
        ('[submodule "x"]\n\turl = ./evil.git\n', True),
        ('[submodule "x"]\n\tupdate = !evil\n', True),
        ("[color]\n\tui = auto\n[pull]\n\trebase = true\n", False),
        ("this is no setting\n[\n", True),
        ('[user]\n\tname = "me # [core]" ; fsmonitor = x\n', False),
        ("[user]\n\tname = me \\\n fsmonitor = x\n", False),
        ("[user] name = me\n[core]sshCommand = evil\n", True),
    ],
)
def test_only_git_settings_that_run_something_are_reported(
    root: int, tmp_path: Path, added: str, told: bool
) -> None:
    watch = Watch(root)
    before = watch.before()
    with (tmp_path / ".git" / "config").open("a") as config:
        config.write(added)
    assert watch.since(before) == ((".git/config",) if told else ())


def test_a_removed_remote_whose_name_is_a_path_is_reported(
    root: int, tmp_path: Path
) -> None:
    config = tmp_path / ".git" / "config"
    branch = '[branch "main"]\n\tremote = evil.git\n'
    config.write_text(f'[remote "evil.git"]\n\turl = there:x\n{branch}')
    watch = Watch(root)
    before = watch.before()
    config.write_text(branch)
    assert watch.since(before) == (".git/config",)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_hooks_path_that_was_set_before_is_followed(
    root: int, tmp_path: Path, absolute: bool
) -> None:
    (tmp_path / "tools" / "hooks").mkdir(parents=True)
    where = tmp_path / "tools" / "hooks" if absolute else "tools/hooks"
    with (tmp_path / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\thooksPath = {where}\n")
    watch = Watch(root)
    before = watch.before()
    (tmp_path / "tools" / "hooks" / "pre-commit").write_text("evil")
    assert watch.since(before) == ("tools/hooks/pre-commit",)


def test_settings_of_a_submodule_are_reported(repositories: tuple[Path, Watch]) -> None:
    top, watch = repositories
    before = watch.before()
    git("config", "core.fsmonitor", "evil", cwd=top / "vendor/library")
    assert watch.since(before) == (".git/modules/vendor/library/config",)
