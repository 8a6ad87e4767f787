"""Brace expansion. bash does it before all other expansions, on the raw word."""

import re

from .marks import ATOM
from .parser import Node, TooComplex

MAX_WORDS, MAX_BRACES = 512, 64
Token = str | Node


def brace_expand(parts: list[Node]) -> list[list[Node]]:
    if not any(
        part["Type"] == "Lit" and "{" in part.get("Value", "") for part in parts
    ):
        return [parts]
    if (
        sum(part.get("Value", "").count("{") for part in parts if part["Type"] == "Lit")
        > MAX_BRACES
    ):
        raise TooComplex("it has too many braces to judge")
    words = _expand(_tokens(parts))
    if len(words) >= MAX_WORDS:
        raise TooComplex("its brace expansion is too large to judge")
    return [_parts(tokens) for tokens in words]


def _tokens(parts: list[Node]) -> list[Token]:
    found: list[Token] = []
    for part in parts:
        found += (
            re.findall(r"\\.|.", part.get("Value", ""), re.S)
            if part["Type"] == "Lit"
            else [part]
        )
    return found


def _parts(tokens: list[Token]) -> list[Node]:
    parts: list[Node] = []
    for token in tokens:
        if isinstance(token, str) and parts and parts[-1]["Type"] == "Lit":
            parts[-1]["Value"] += token
        else:
            parts.append(
                {"Type": "Lit", "Value": token} if isinstance(token, str) else token
            )
    return parts


def _expand(tokens: list[Token], depth: int = 0) -> list[list[Token]]:
    for start, token in enumerate(tokens):
        if token == "{" and depth < 12:
            options, end = _options(tokens, start)
            if options:
                tails = _expand(tokens[end:], depth + 1)
                heads = [
                    head for option in options for head in _expand(option, depth + 1)
                ]
                return [
                    tokens[:start] + head + tail
                    for head in heads[:MAX_WORDS]
                    for tail in tails
                ][:MAX_WORDS]
    return [tokens]


def _options(tokens: list[Token], start: int) -> tuple[list[list[Token]], int]:
    """The alternatives of the brace at `start`, and where it ends. No alternatives: it is no brace expansion."""
    depth = 0
    options: list[list[Token]] = []
    current: list[Token] = []
    for at in range(start + 1, len(tokens)):
        token = tokens[at]
        if token == "}" and depth == 0:
            if options:
                return [*options, current], at + 1
            return _sequence(current), at + 1
        depth += (token == "{") - (token == "}")
        if token == "," and depth == 0:
            options.append(current)
            current = []
        else:
            current.append(token)
    return [], start


def _sequence(tokens: list[Token]) -> list[list[Token]]:
    """`{1..9}` becomes the first, the last, and one mark for all between."""
    text = "".join(token if isinstance(token, str) else " " for token in tokens)
    found = re.fullmatch(
        r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.-?\d{1,9})?", text
    )
    return [[found[1]], [found[2]], [ATOM]] if found else []
