"""Which paths a program in another language deletes: those its calls name, or else any that it holds as a path."""

import re
from collections.abc import Callable

from .folding import _STRING
from .marks import STAR, UNKNOWN

Unquote = Callable[[str], str]
MAX_CALLS = 50

# Calls that delete files. Maps and sets have `delete` and `remove` too: those need a receiver that is a file system's.
DELETISH = re.compile(
    r"\b(?:rm(?:Sync|dir\w*|tree|_rf?|_r)?|unlink\w*|rimraf|RemoveAll|removeItem|removeSync|remove_\w+|emptyDir\w*|del|"
    r"delete(?:Dir|Recursively|Sync|IfExists|OnExit|_entry\w*|-directory|-file)|truncate\w*)\b"
    r"|\b(?:Files?|FileUtils|Dir(?:ectory)?|Path(?:name|s)?|os|fs\w*|IO|io|Deno|file|FileSystem|default)[.:]+"
    r"(?:[rR]emove|[dD]elete)\w*|\.delete\b(?!\s*[(\w'\"])|\.delete\(\s*\)|:delete\b|(?<![\w.>:])remove\s*\("
)
_IMPORTS = re.compile(
    r"(?:const|let|var|import|use)\b[^;\n{]{0,60}\{(?:(?!:(?!:)|\bas\b)[^}]){0,400}\}\s*(?:=\s*require|from|;)"
)
# Where a path-like literal is no path: separators, comparisons, routes, keys.
_NO_PATH_BEFORE = re.compile(
    r"(?:split|[jJ]oin|replace\w*|g?sub!?|starts?_?[wW]ith\??|ends?_?[wW]ith\??|HasPrefix|HasSuffix|[cC]ontains|includes?\??"
    r"|[iI]ndexOf|match|test|isAbsolute|extname|to(?:Strict)?Equal|toBe|toContain|toMatch|expect|assert\w*|[eE]quals?"
    r"|explode|implode|HandleFunc|Handle|route|Split|Join|TrimSuffix|TrimPrefix"
    r"|\b(?:app|router|server|api|r|mux|http|client|request|axios)\.\w+"
    r"|(?<![\w.:])(?:get|post|put|patch|delete|redirect|href))"
    r"\s*\(?\s*$|(?:[=!]==?|=~|\beq|\bne|\bcase|\bwhen)\s*$"
)
_NO_PATH_AFTER = re.compile(r"\s*(?:=>|[=!]==?|:(?!:))")


def path_literals(code: str, unquoted: Unquote) -> list[str]:
    """Literals, save those that stand where no path stands; a key may be one where keys are gone through."""
    unlisted = not re.search(r"\bfor\b[^;{]*\bin\b|foreach|each_key|\bkeys\b|entries", code)
    found = [
        unquoted(literal[0])
        for literal in list(re.finditer(_STRING, code))[:200]
        if not _NO_PATH_BEFORE.search(code[max(0, literal.start() - 40) : literal.start()])
        and not (unlisted and _NO_PATH_AFTER.match(code, literal.end()))
    ]
    return found + re.findall(r"<([~/][^<>\s]*)>", code)


def masked_code(code: str) -> str:
    """The code, as long as it was, with its literals empty and its imports gone."""
    masked = re.sub(_STRING, lambda m: m[0][0] + "\0" * (len(m[0]) - 2) + m[0][0], code)
    return _IMPORTS.sub(lambda m: " " * len(m[0]), masked)


def named_targets(code: str, unquoted: Unquote) -> list[str] | None:
    """The paths to delete where each call names its own outright; else None: it may be any path in the code."""
    masked = masked_code(code)
    found, calls = [], list(DELETISH.finditer(masked))
    if len(calls) > MAX_CALLS:
        return None
    for call in calls:
        named = re.match(
            rf"\s*\(?\s*\[?\s*((?:{_STRING}\s*,\s*)*{_STRING})(?:\s*([+.])|\s*[])}},;]|\s*$|\s*\n|\s+(?:if|unless|for)\b)",
            code[call.end() :],
        ) or re.search(
            rf"(?:File|Path\w*|new|of)\(({_STRING})\s*\)\s*\.?()$", code[max(0, call.start() - 200) : call.start()]
        )
        paths = [unquoted(text) for text in re.findall(_STRING, named[1])] if named else []
        if not named and _temporary(code, code[call.end() :]):
            continue
        if not named or any(path[:1] in ("", UNKNOWN) for path in paths):
            return None
        found += [path + (STAR if named[2] else "") for path in paths]
    return found if calls else None


def _temporary(code: str, rest: str) -> bool:
    """Whether the call's argument is a variable that only ever holds a temporary directory of its own."""
    argument = re.match(r"\s*\(?\s*&?([$]?[a-zA-Z]\w*)\s*[,);\n]", rest)
    if not argument:
        return False
    name = rf"(?<![\w$.]){re.escape(argument[1])}\b"
    values = re.findall(rf"{name}(?:\s*,\s*\w+|\s*:\s*\w+)?\s*:?=(?![=>])\s*([^;\n]*)", code)
    rebound = rf"{name}\s*(?:=>|of\b|in\b|\|)|(?:\bfor\b|\bfunc\w*|\bdef|\bfn)[^(\n]*[\s(,]{name}|\(\s*{name}\s*\)\s*=>"
    made = [
        re.match(r"(?i)(?!.*['\"`][/~](?!tmp/)).*(?:mkd?temp|mkdirtemp|te?mp_?dir|createtemp)", one) for one in values
    ]
    return bool(made) and all(made) and not re.search(rebound, code)
