"""The policy's code stays small enough to maintain. If it grows again, a table is missing."""

import ast
import io
import tokenize
from pathlib import Path
from textwrap import dedent

from belljar import policy
from belljar.policy import policies_directory

SOURCES = sorted(Path(policy.__file__).parent.glob("*.py"))
LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
}


def words(text: str) -> int:
    """Words count and not lines: what is packed is no smaller."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(one.type not in LAYOUT for one in tokens)


def test_no_file_and_no_function_is_too_long() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert words(text) <= 3_500, path.name
        functions = [
            ast.get_source_segment(text, node, padded=True) or ""
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef)
        ]
        long = [each for each in functions if words(dedent(each)) > 450]
        assert not long, (path.name, long)


def test_code_and_data_stay_within_their_sizes() -> None:
    assert sum(words(path.read_text()) for path in SOURCES) <= 61_100
    files = (policies_directory() / "knowledge").glob("*.toml")
    assert sum(len(path.read_text().splitlines()) for path in files) <= 1_550
