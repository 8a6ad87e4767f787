"""Commands that need no sandbox, and every kind of bad input: one clear line, the right status."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar import enforcement
from belljar.errors import UsageError
from belljar.surfaces.cli.main import main
from belljar.surfaces.cli.parser import parse


def test_the_first_example_of_the_help_works(workspace: Path) -> None:
    line = next(
        line for line in belljar("help").stdout.splitlines() if "belljar run '" in line
    )
    text = line.split("'")[1]
    answer = belljar("run", "--workspace", workspace, f"set -eo pipefail; {text}")
    assert (answer.status, answer.stderr) == (0, "")


def test_arguments_that_are_not_utf8_are_kept(workspace: Path) -> None:
    document = belljar(
        "run", "--json", "--workspace", workspace, r"printf 'a\377b'; echo fine >&2"
    ).json
    assert b64decode(document["stdout_base64"]) == b"a\xffb"
    assert "stderr_base64" not in document


class TestSettings:
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.user, self.operator = tmp_path / "user.toml", tmp_path / "operator.toml"
        monkeypatch.setenv("BELLJAR_CONFIG", str(self.user))
        monkeypatch.setattr(enforcement, "OPERATOR", self.operator)

    def write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o600)

    def test_options_win_over_the_user_s_file_and_that_over_the_operator_s(
        self,
    ) -> None:
        self.write(self.operator, 'image = "node"\nmemory = "1g"\n')
        self.write(self.user, 'image = "python"\ntimeout = "5m"\n')
        args = parse(["run", "ls"])
        assert (args.image, args.memory, args.timeout) == ("python", "1g", 300)
        assert parse(["run", "--image", "base", "ls"]).image == "base"

    def test_a_setting_that_the_operator_enforces_wins(self) -> None:
        self.write(
            self.operator,
            '[enforce]\npolicy = "strict"\nnetwork = "none"\ntimeout = 60\n',
        )
        self.write(self.user, 'policy = "permissive"\n')
        assert parse(["run", "ls"]).policy == "strict"
        assert (
            parse(["run", "--policy", "strict", "--timeout", "1m", "ls"]).timeout == 60
        )
        for more in (
            ["--policy", "default"],
            ["--network", "full"],
            ["--timeout", "2m"],
        ):
            with pytest.raises(UsageError, match="on this machine"):
                parse(["run", *more, "ls"])

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("imge = 'x'", "did you mean 'image'?"),
            ("image = [1]", "must be text or a number"),
            ("network = 'some'", "choose from none, full"),
            ("image", "user.toml"),
            ("workspace = '/'", "no setting 'workspace'"),
        ],
    )
    def test_a_mistake_in_a_settings_file_is_named_with_the_file(
        self, text: str, said: str
    ) -> None:
        self.write(self.user, text)
        with pytest.raises(UsageError, match=r"user\.toml") as raised:
            parse(["run", "ls"])
        assert said in str(raised.value)

    def test_a_file_that_others_can_write_is_refused(self) -> None:
        self.write(self.user, 'policy = "permissive"')
        self.user.chmod(0o666)
        with pytest.raises(UsageError, match="can be written by other users"):
            parse(["run", "ls"])

    def test_a_file_inside_the_workspace_is_not_read(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.write(self.user, 'policy = "permissive"')
        args = parse(["run", "--workspace", str(self.user.parent), "ls"])
        assert args.policy == "default"
        assert "inside the workspace" in capsys.readouterr().err

    def test_config_says_where_each_setting_comes_from(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.write(self.operator, 'image = "node"\n[enforce]\nnetwork = "none"\n')
        self.write(self.user, 'memory = "3g"\n')
        assert main(["config"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(line.split() == ["memory", "3g", str(self.user)] for line in lines)
        assert any("network" in line and "(enforced)" in line for line in lines)


def test_a_missing_image_says_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--image", "nobody/has:this", "ls"]) == 125
    assert "docker pull nobody/has:this" in capfd.readouterr().err


def test_a_policy_file_with_a_mistake_names_file_and_line(
    tmp_path: Path, workspace: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[[rule]]\nnonsense = [\n')
    answer = belljar("run", "--policy", file, "--workspace", workspace, "ls")
    assert answer.status == 2
    assert str(file) in answer.complaint


def test_an_engine_that_does_not_answer_is_one_line_of_error(tmp_path: Path) -> None:
    answer = belljar("run", "true", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert answer.status == 125
    assert "engine" in answer.complaint


def test_an_unexpected_error_is_one_line_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("belljar.surfaces.cli.policy_commands.check", lambda _: 1 / 0)
    assert main(["check", "ls"]) == 125
    assert "ZeroDivisionError" in (said := capfd.readouterr().err)
    assert "BELLJAR_DEBUG=1" in said
    monkeypatch.setenv("BELLJAR_DEBUG", "1")
    main(["check", "ls"])
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.docker
def test_a_runtime_that_the_engine_lacks_is_named_with_the_remedy(
    workspace: Path,
) -> None:
    answer = belljar(
        "run",
        "--workspace",
        workspace,
        "--engine",
        "docker",
        "--runtime",
        "nosuch",
        "true",
    )
    assert answer.status == 125
    assert "leave --runtime out" in answer.complaint
