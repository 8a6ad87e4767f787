"""Settings come from files that no command can write. The operator's settings win."""

import os
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from belljar import enforcement
from belljar.errors import UsageError
from belljar.network.allow import Allow
from belljar.policy import Policy
from belljar.session.door import under_policy
from belljar.surfaces.cli import settings
from belljar.surfaces.cli.arguments import options_of
from belljar.surfaces.cli.parser import build


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    operator, user = tmp_path / "operator.toml", tmp_path / "home" / "user.toml"
    user.parent.mkdir()
    user.touch()
    monkeypatch.setattr(enforcement, "OPERATOR", operator)
    monkeypatch.setenv("BELLJAR_CONFIG", str(user))
    return operator, user


def test_user_settings_win_over_the_operator_s_but_not_over_enforced_ones(
    files: tuple[Path, Path],
) -> None:
    operator, user = files
    operator.write_text('memory = "1g"\nimage = "base"\n[enforce]\nnetwork = "none"\n')
    user.write_text('memory = "2g"\nnetwork = "full"\n')
    found = settings.load()
    assert {name: each.value for name, each in found.items()} == {
        "memory": "2g",
        "image": "base",
        "network": "none",
    }
    settings.enforce(Namespace(network="none"), found)
    with pytest.raises(UsageError, match="--network must be none on this machine"):
        settings.enforce(Namespace(network="full"), found)


def test_a_settings_file_that_was_named_must_exist(files: tuple[Path, Path]) -> None:
    files[1].unlink()
    with pytest.raises(
        UsageError, match=r"BELLJAR_CONFIG names .* which does not exist"
    ):
        settings.load()


def test_an_operator_may_allow_several_images(files: tuple[Path, Path]) -> None:
    operator, user = files
    operator.write_text('[enforce]\nimage = ["python", "base", "house/tools:1"]\n')
    found = settings.load()
    assert found["image"].value == "python"
    assert (
        found["image"].described_source
        == f"{operator} (of python, base or house/tools:1, enforced)"
    )
    for image in ("python", "base", "house/tools:1"):
        settings.enforce(Namespace(image=image), found)
    with pytest.raises(
        UsageError,
        match="--image must be python, base or house/tools:1 on this machine",
    ):
        settings.enforce(Namespace(image="debian"), found)
    user.write_text('image = "base"\n')
    assert settings.load()["image"].value == "base"
    user.write_text('image = "debian"\n')
    assert settings.load()["image"].value == "python"


@pytest.mark.parametrize(
    "line",
    ['policy = ["ci", "strict"]', 'memory = ["1g"]', "image = []", "image = [1, []]"],
)
def test_a_list_for_a_single_setting_is_refused(
    line: str, files: tuple[Path, Path]
) -> None:
    files[0].write_text(f"[enforce]\n{line}\n")
    with pytest.raises(UsageError, match="must be text or a number"):
        settings.load()


def test_settings_are_the_defaults_of_the_options(files: tuple[Path, Path]) -> None:
    files[1].write_text('memory = "2g"\n')
    parser = build()
    settings.apply(parser, settings.load())
    assert parser.parse_args(["run", "true"]).memory == "2g"
    assert parser.parse_args(["run", "--memory", "3g", "true"]).memory == "3g"


def test_a_settings_file_in_the_workspace_is_ignored(files: tuple[Path, Path]) -> None:
    files[1].write_text('memory = "2g"\n')
    assert settings.load(str(files[1].parent)) == {}


def test_a_file_that_others_can_write_is_not_read(files: tuple[Path, Path]) -> None:
    files[1].write_text('memory = "2g"\n')
    files[1].chmod(0o666)
    with pytest.raises(UsageError, match="chmod go-w"):
        settings.load()


def test_a_file_that_is_swapped_after_it_was_judged_is_not_read(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, user = files
    user.write_text('memory = "1g"\n')
    other = user.with_name("other.toml")
    other.write_text('memory = "9g"\n')

    def then_swapped(look: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **more: Any) -> Any:
            found = look(*given, **more)
            with suppress(FileNotFoundError):
                os.replace(other, user)
            return found

        return wrapped

    monkeypatch.setattr(os, "fstat", then_swapped(os.fstat))
    monkeypatch.setattr(Path, "stat", then_swapped(Path.stat))
    assert settings.load()["memory"].value == "1g"
    assert not other.exists()


def test_an_enforced_size_count_or_time_is_a_ceiling(files: tuple[Path, Path]) -> None:
    files[0].write_text('[enforce]\nmemory = "256m"\npids = 64\ntimeout = "5m"\n')
    files[1].write_text('memory = "128m"\npids = 100\n')
    found = settings.load()
    assert {name: each.value for name, each in found.items()} == {
        "memory": "128m",
        "pids": "64",
        "timeout": "5m",
    }
    parser = build()
    settings.apply(parser, found)
    for given in (["--memory", "200m"], ["--pids", "32"], ["--timeout", "60"], []):
        settings.enforce(parser.parse_args(["run", *given, "true"]), found)
    for given, most in (
        (["--memory", "1g"], "256m"),
        (["--pids", "65"], "64"),
        (["--timeout", "301"], "5m"),
    ):
        with pytest.raises(
            UsageError, match=f"{given[0]} may be at most {most} on this machine"
        ):
            settings.enforce(parser.parse_args(["run", *given, "true"]), found)
    with pytest.raises(UsageError, match="--memory: 'lots' is not a size"):
        settings.enforce(parser.parse_args(["run", "--memory", "lots", "true"]), found)


@pytest.mark.parametrize(
    "given", [["--allow", "a.example"], ["--allow-preset", "python"], ["--ask-hosts"]]
)
def test_an_enforced_network_none_refuses_allow_options(
    files: tuple[Path, Path], given: list[str]
) -> None:
    files[0].write_text('[enforce]\nnetwork = "none"\n')
    with pytest.raises(
        UsageError, match=f"{given[0]}: there is no network on this machine"
    ):
        settings.enforce(build().parse_args(["run", *given, "true"]), settings.load())


def test_an_enforced_network_none_overrides_the_policy_s_hosts(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "open.toml").write_text(
        '[policy]\nname = "open"\n[network]\nallow = ["a.example"]\n'
    )
    args = build().parse_args(["run", "--policy", str(tmp_path / "open.toml"), "true"])
    assert under_policy("none", Policy.load(options_of(args).policy)) is not None  # type: ignore[arg-type]
    files[0].write_text('[enforce]\nnetwork = "none"\n')
    policy = options_of(args).policy
    assert isinstance(policy, Policy)
    assert under_policy("none", policy) is None
    with pytest.raises(UsageError, match="ceiling"):
        under_policy(Allow("b.example"), policy)


def test_an_enforced_yes_false_refuses_yes_where_it_answers_for_a_person(
    files: tuple[Path, Path],
) -> None:
    files[0].write_text("[enforce]\nyes = false\nroot = false\n")
    found = settings.load()
    start = ["start", "--session", "x", "--yes", "sudo true"]
    for words in (["run", "--yes", "sudo true"], start, ["call", "--yes", "Bash"]):
        with pytest.raises(UsageError, match="--yes is not allowed on this machine"):
            settings.enforce(build().parse_args(words), found)
    with pytest.raises(UsageError, match="--root is not allowed on this machine"):
        settings.enforce(build().parse_args(["run", "--root", "true"]), found)
    settings.enforce(
        build().parse_args(["prune", "--yes"]), found
    )  # it answers for the one who types it
    settings.enforce(build().parse_args(["run", "true"]), found)
    assert (found["yes"].value, found["root"].described_source) == (
        "false",
        f"{files[0]} (enforced)",
    )


def test_a_path_is_relative_to_the_file_that_names_it(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of that name in a repository must not be used."""
    repository = tmp_path / "repository"
    for place in (tmp_path, files[1].parent, repository):
        (place / "pol").mkdir(parents=True)
        (place / "pol" / "house.toml").write_text('[policy]\nname = "house"\n')
    monkeypatch.chdir(repository)
    files[1].write_text('policy = "pol/house.toml"\nruntime = "bin/runc"\n')
    assert settings.load()["policy"].value == str(
        files[1].parent / "pol" / "house.toml"
    )
    assert settings.load()["runtime"].value == str(files[1].parent / "bin" / "runc")
    files[0].write_text('[enforce]\npolicy = "pol/house.toml"\nruntime = "runsc"\n')
    assert settings.load()["policy"].value == str(tmp_path / "pol" / "house.toml")
    assert settings.load()["runtime"].value == "runsc"
    files[0].write_text('policy = "strict"\n')
    files[1].write_text("")
    assert settings.load()["policy"].value == "strict"


def test_a_misspelt_table_of_the_operators_is_named(files: tuple[Path, Path]) -> None:
    files[0].write_text('[enforced]\nnetwork = "none"\n')
    with pytest.raises(UsageError, match="did you mean 'enforce'"):
        settings.load()


@pytest.mark.parametrize(
    ("text", "said"),
    [("memroy = 1", "did you mean 'memory'"), ("memory = true", "text or a number"), ("memory", "user.toml:"),
     ("enforce = 1", "no setting 'enforce'"), ('memory = "lots"', "user.toml: memory: 'lots' is not a size"),
     ("timeout = -5", "user.toml: timeout: '-5' is not a time"),
     ('policy = "nosuch"', "user.toml: no policy '.*nosuch'"),
     ('network = "half"', "user.toml: network is 'half'; choose from none, full"), ("cpus = 0", "out of bounds")],
)  # fmt: skip
def test_a_mistake_names_the_file(
    files: tuple[Path, Path], text: str, said: str
) -> None:
    files[1].write_text(text)
    with pytest.raises(UsageError, match=said):
        settings.load()


@pytest.mark.root
def test_a_link_of_another_user_s_to_a_file_of_ours_is_not_followed(
    files: tuple[Path, Path],
) -> None:
    """With root running under his HOME, relative paths in our file would lead to files beside his link."""
    _, user = files
    ours = user.parents[1] / "ours.toml"
    ours.write_text('runtime = "bin/runc"\n')
    user.unlink()
    user.symlink_to(ours)
    assert settings.load()["runtime"].value == str(user.parent / "bin" / "runc")
    os.chown(user.parent, 4711, 4711)
    with pytest.raises(UsageError, match=f"others own {user.parent}"):
        settings.load()
