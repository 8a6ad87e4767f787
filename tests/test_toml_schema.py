"""The parts of JSON Schema that Belljar uses, and the line of a mistake. Real files: tests/policy/test_knowledge.py."""

import jsonschema
import pytest

from belljar.toml_schema import did_you_mean, line_of, problems

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {
            "type": "string",
            "pattern": "^[a-z]+$",
            "description": "a word",
            "examples": ["main"],
        },
        "kind": {"enum": ["one", "two"]},
        "hosts": {"$ref": "#/$defs/texts"},
    },
    "$defs": {
        "texts": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    },
}
TEXT = """name = "x"
[[rule]]
id = "a"
[[rule]]
id = "b"
risk = "high"
"""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"name": "main", "kind": "one", "hosts": ["a"]}, []),
        ({"name": "main", "hosts": "a"}, []),
        ({"kind": "one"}, [("", "the file needs 'name'")]),
        ({"name": "MAIN"}, [("name", "name is a word, not 'MAIN'")]),
        (
            {"name": "main1"},
            [("name", "name is a word, not 'main1'; did you mean 'main'?")],
        ),
        (
            {"name": "main", "kind": "six"},
            [("kind", "kind is one of one, two, not 'six'")],
        ),
        (
            {"name": "main", "kin": "one"},
            [(".kin", "the file has an unknown key 'kin'; did you mean 'kind'?")],
        ),
        ({"name": "main", "hosts": [3]}, [("hosts[0]", "hosts[0] is text, not 3")]),
    ],
)
def test_a_mistake_is_reported_with_its_place(
    data: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    assert list(problems(data, SCHEMA)) == expected
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(data) == (not expected)


@pytest.mark.parametrize(
    ("where", "line"),
    [("name", 1), ("rule[0].id", 3), ("rule[1]", 4), ("rule[1].risk", 6)],
)
def test_a_place_in_a_document_has_its_line_number(where: str, line: int) -> None:
    assert line_of(TEXT, where) == line


def test_a_word_unlike_all_others_gets_no_suggestion() -> None:
    assert did_you_mean("zzz", ["main"]) == ""
