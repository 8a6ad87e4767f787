"""Settings come from files that no command can write, and the operator's word is the last."""

from argparse import Namespace
from pathlib import Path

import pytest

from belljar.errors import UsageError
from belljar.surfaces.cli import settings
from belljar.surfaces.cli.parser import build


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    operator, user = tmp_path / "operator.toml", tmp_path / "home" / "user.toml"
    user.parent.mkdir()
    monkeypatch.setattr(settings, "OPERATOR", operator)
    monkeypatch.setenv("BELLJAR_CONFIG", str(user))
    return operator, user


def test_the_user_goes_before_the_operator_but_not_before_what_is_enforced(files: tuple[Path, Path]) -> None:
    operator, user = files
    operator.write_text('memory = "1g"\nimage = "base"\n[enforce]\nnetwork = "none"\n')
    user.write_text('memory = "2g"\nnetwork = "full"\n')
    found = settings.load()
    assert {name: each.value for name, each in found.items()} == {"memory": "2g", "image": "base", "network": "none"}
    settings.enforce(Namespace(network="none"), found)
    with pytest.raises(UsageError, match="--network must be none on this machine"):
        settings.enforce(Namespace(network="full"), found)


def test_they_are_the_options_defaults(files: tuple[Path, Path]) -> None:
    files[1].write_text('memory = "2g"\n')
    parser = build()
    settings.apply(parser, settings.load())
    assert parser.parse_args(["run", "true"]).memory == "2g"
    assert parser.parse_args(["run", "--memory", "3g", "true"]).memory == "3g"


def test_a_file_in_the_workspace_does_not_count(files: tuple[Path, Path]) -> None:
    files[1].write_text('memory = "2g"\n')
    assert settings.load(str(files[1].parent)) == {}


def test_a_file_that_others_can_write_is_not_read(files: tuple[Path, Path]) -> None:
    files[1].write_text('memory = "2g"\n')
    files[1].chmod(0o666)
    with pytest.raises(UsageError, match="chmod go-w"):
        settings.load()


@pytest.mark.parametrize(
    ("text", "said"),
    [("memroy = 1", "did you mean 'memory'"), ("memory = true", "text or a number"), ("memory", "user.toml:"),
     ("enforce = 1", "no setting 'enforce'")],
)  # fmt: skip
def test_a_mistake_names_the_file(files: tuple[Path, Path], text: str, said: str) -> None:
    files[1].write_text(text)
    with pytest.raises(UsageError, match=said):
        settings.load()
