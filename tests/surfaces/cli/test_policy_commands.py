"""`belljar policy explain` and `belljar policy test`, as a person meets them."""

from pathlib import Path

from tests.surfaces.invoking import belljar

TOOL = """
[program.deployctl.verbs]
"destroy" = { effect = "service.delete", examples = { "deployctl destroy x" = "service.delete" } }
"""


def test_an_explanation_shows_the_commands_with_their_entries_the_effects_and_the_rules() -> None:
    answer = belljar("policy", "explain", "bash -c 'git push --force'")
    assert answer.status == 3
    for told in ("git push in knowledge/vcs.toml", "vcs.rewrite", "rule vcs.rewrite: ask"):
        assert told in answer.stdout
    assert belljar("policy", "explain", "--json", "rm -rf /").json["commands"]


def test_a_knowledge_file_is_tested_by_its_schema_and_its_examples(tmp_path: Path) -> None:
    path = tmp_path / "deployctl.toml"
    path.write_text(TOOL)
    assert belljar("policy", "test", str(path)).stdout == f"{path}: its examples hold\n"
    path.write_text(TOOL.replace("service.delete", "data.drop", 1))
    assert "deployctl destroy" in belljar("policy", "test", str(path)).complaint
    path.write_text("[program.x]\neffekt = 'data.drop'\n")
    assert "unknown key 'effekt'" in belljar("policy", "test", str(path)).complaint
