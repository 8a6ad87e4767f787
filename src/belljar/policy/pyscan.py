"""Python code: a small evaluator over `ast`.

It computes strings, follows names and imports, and calls functions. Calls that run, delete, write, read or send
something become effects; pycalls.py and languages.toml say what each call does.
"""

import ast
import re
from typing import Any

from . import expressions
from .call import Call, program
from .marks import FILE, MAX_TEXT, NETWORK, UNKNOWN, clip, drop_unset, known, unglob
from .parser import TooComplex
from .pycalls import (
    LOOP_LIMIT,
    PythonState,
    Ref,
    evaluate_call,
    formatted,
    items_of,
    join_path,
    text_of,
    unknown_part,
)
from .toml_files import tables

MAX_STEPS, MAX_ITEMS, MAX_DEPTH = 50_000, 10_000, 8
_FILE_TESTS = {"is_file", "is_dir", "exists", "isfile", "isdir", "isdigit"}
_TEXT_ATTRIBUTES = ("text", "content", "stdout", "parent", "data")


class PythonScan(PythonState):
    def __init__(self, call: Call, argv: list[str] | None = None) -> None:
        super().__init__(call)
        self.depth = self.steps = 0
        self.names: dict[str, Any] = {
            "__name__": "__main__"
        }  # the value of a function or class is its syntax tree
        self.constants: dict[str, Any] = {
            "sys.argv": ["-c", *(argv or [])],
            "sys.executable": "/usr/bin/python3",
        }
        self.constants |= {
            "os.sep": "/",
            "os.curdir": ".",
            "sys.stdin": call.stdin.splitlines() or UNKNOWN,
        }

    def run(self, code: str) -> bool:
        if self.depth >= MAX_DEPTH:
            return False
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        self.depth += 1
        try:
            self.body(tree.body)
        except RecursionError:
            self.call.emit("exec.unseen", "python")
        self.depth -= 1
        return True

    def invoke(self, function: Any, args: list[Any], words: dict[str, Any]) -> Any:
        if isinstance(function, Ref):
            own = self.names.get(function.name.removeprefix("value."))
            if not isinstance(own, ast.AST):
                return evaluate_call(self, function, args, words)
            function, args = (
                own,
                args if function.bound is None else [function.bound, *args],
            )
        return (
            self._apply(function, args, words)
            if isinstance(function, ast.AST)
            else UNKNOWN
        )

    def _apply(self, node: Any, args: list[Any], words: dict[str, Any]) -> Any:
        """Call a function of the code. Of a class, call the methods that Python calls by itself."""
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name.startswith("__"):
                    self._apply(one, [UNKNOWN, *args], words)
            return UNKNOWN
        if self.depth >= MAX_DEPTH:
            return UNKNOWN
        self.depth += 1
        given = node.args
        names = [one.arg for one in node.args.args]
        defaults = zip(
            reversed(names), map(self.visit, reversed(given.defaults)), strict=False
        )
        self.names |= {
            **dict(defaults),
            **dict(zip(names, args, strict=False)),
            **words,
            "return": None,
        }
        if given.vararg:
            self.names[given.vararg.arg] = args[len(names) :]
        if isinstance(node, ast.Lambda):
            self.names["return"] = self.visit(node.body)
        else:
            self.body(node.body)
        self.depth -= 1
        return self.names["return"]

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def visit(self, node: ast.AST | None) -> Any:
        """Evaluate an expression, or carry out a statement."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooComplex("its Python code is too long to judge")
        if self.steps % 64 == 0:
            self.call.machine.tick()
        handler = getattr(self, "_" + type(node).__name__.lower(), None)
        if node is None or handler:
            return self._bounded(handler(node)) if handler else None
        values = [self.visit(child) for child in ast.iter_child_nodes(node)]
        return (
            values[0]
            if isinstance(node, ast.Await | ast.FormattedValue | ast.Starred)
            else UNKNOWN
        )

    @staticmethod
    def _bounded(value: Any) -> Any:
        """The value, if it is not too large."""
        if isinstance(value, list) and len(value) > MAX_ITEMS:
            raise TooComplex("its lists are too long to judge")
        return clip(value) if isinstance(value, str) else value

    def _import(self, node: ast.Import) -> None:
        for item in node.names:
            self._import_written(item.name)
            top = item.name.split(".")[0]
            self.names[item.asname or top] = Ref(item.name if item.asname else top)

    def _importfrom(self, node: ast.ImportFrom) -> None:
        self._import_written(node.module or "")
        for item in node.names:
            if not isinstance(self.names.get(item.name), ast.AST):
                self.names[item.asname or item.name] = Ref(f"{node.module}.{item.name}")

    def _import_written(self, module: str) -> None:
        """Run an imported module if this command wrote it."""
        written = (
            self.call.machine.read_file(
                module.replace(".", "/") + ".py", self.call.state
            )
            or ""
        )
        if NETWORK in written:
            self.call.emit("exec.network", module)
        elif written and known(written):
            before = set(self.names)
            self.run(written)
            self.names |= {
                f"{module}.{name}": self.names[name]
                for name in set(self.names) - before
            }

    def _assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self._bind(target, value)

    def _augassign(self, node: ast.AugAssign) -> None:
        self._bind(node.target, self.visit(ast.BinOp(node.target, node.op, node.value)))

    def _annassign(self, node: ast.AnnAssign | ast.NamedExpr) -> Any:
        value = self.visit(node.value)
        self._bind(node.target, value)
        return value

    _namedexpr = _annassign

    def _withitem(self, node: ast.withitem) -> None:
        self._bind(node.optional_vars, self.visit(node.context_expr))

    def _bind(self, target: ast.expr | None, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            self.names[f"{target.value.id}.{target.attr}"] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = value if isinstance(value, list) else [value] * len(target.elts)
            for element, item in zip(target.elts, items, strict=False):
                self._bind(element, item)
        elif isinstance(target, ast.Subscript):
            held = self.visit(target.value)
            key = text_of(self.visit(target.slice))
            if isinstance(held, Ref) and held.name == "os.environ":
                self.call.machine.set(key, text_of(value), self.call.state)
            elif isinstance(held, dict):
                held[key] = value

    def _functiondef(self, node: Any) -> Any:
        self.names[node.name] = node

    _asyncfunctiondef = _functiondef

    def _lambda(self, node: ast.Lambda) -> Any:
        return node

    def _classdef(self, node: ast.ClassDef) -> None:
        self.names[node.name] = node
        self.body(node.body)

    def _for(self, node: ast.For) -> None:
        for item in items_of(self.visit(node.iter))[:LOOP_LIMIT]:
            self._bind(node.target, item)
            self.body(node.body)
        self.body(node.orelse)

    _asyncfor = _for

    def _if(self, node: ast.If) -> None:
        self.visit(node.test)
        chosen = picks([node.test])
        self.picking += chosen
        self.body([*node.body, *node.orelse])
        self.picking -= chosen

    def _while(self, node: ast.While) -> None:
        self.visit(node.test)
        self.looping += 1
        self.body(node.body)
        self.looping -= 1

    def _return(self, node: ast.Return) -> None:
        self.names["return"] = self.visit(node.value)

    def _constant(self, node: ast.Constant) -> Any:
        return (
            node.value.decode("latin-1")
            if isinstance(node.value, bytes)
            else node.value
        )

    def _name(self, node: ast.Name) -> Any:
        return self.names[node.id] if node.id in self.names else Ref(node.id)

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        return clip("".join(text_of(self.visit(piece)) for piece in node.values))

    def _list(self, node: ast.List) -> list[Any]:
        return self._values(node.elts)

    _tuple = _set = _list

    def _values(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            found += (
                items_of(self.visit(node))
                if isinstance(node, ast.Starred)
                else [self.visit(node)]
            )
        return found

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        return {
            text_of(self.visit(key)): self.visit(one)
            for key, one in zip(node.keys, node.values, strict=True)
        }

    def _ifexp(self, node: ast.IfExp) -> Any:
        _ = self.visit(node.test)
        value = self.visit(node.body)
        other = self.visit(node.orelse)
        return other if value == UNKNOWN else value

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        return (
            -value
            if isinstance(node.op, ast.USub) and isinstance(value, int)
            else value
        )

    def _binop(self, node: ast.BinOp) -> Any:
        left = self.visit(node.left)
        right = self.visit(node.right)
        if isinstance(node.op, ast.Add):
            same = (
                isinstance(left, kind) and isinstance(right, kind)
                for kind in (list, int)
            )
            return left + right if any(same) else text_of(left) + text_of(right)
        if isinstance(node.op, ast.Div):
            return join_path([text_of(left), text_of(right)])
        if (
            isinstance(node.op, ast.Mult)
            and isinstance(left, str)
            and isinstance(right, int)
        ):
            return left * min(right, MAX_TEXT // max(1, len(left)) + 1)
        if isinstance(node.op, ast.Mod) and isinstance(left, str):
            return formatted(left, right if isinstance(right, list) else [right])
        return UNKNOWN

    def _listcomp(self, node: ast.ListComp) -> list[Any]:
        self.looping += 1
        found = self._generated(node.elt, node.generators)
        self.looping -= 1
        return found

    _generatorexp = _setcomp = _listcomp

    def _generated(
        self, element: ast.expr, generators: list[ast.comprehension]
    ) -> list[Any]:
        if not generators:
            return [self.visit(element)]
        found: list[Any] = []
        for item in items_of(self.visit(generators[0].iter))[:LOOP_LIMIT]:
            self._bind(generators[0].target, item)
            chosen = picks(generators[0].ifs)
            self.picking += chosen
            found += self._generated(element, generators[1:])
            self.picking -= chosen
        return found

    def _slice(self, node: ast.Slice) -> slice:
        return slice(
            self.visit(node.lower), self.visit(node.upper), self.visit(node.step)
        )

    def _subscript(self, node: ast.Subscript) -> Any:
        value = self.visit(node.value)
        key = self.visit(node.slice)
        if isinstance(value, Ref) and value.name == "os.environ":
            return text_of(self.call.state.get(text_of(key)))
        if isinstance(value, Ref) and NETWORK not in text_of(
            value
        ):  # vars(os)["system"], sys.modules["os"]
            return Ref(
                f"{re.sub(r'[.](__dict__|modules)$', '', value.name)}.{text_of(key)}"
            )
        try:
            return value[text_of(key) if isinstance(value, dict) else key]
        except (TypeError, IndexError, KeyError, ValueError):
            return value if isinstance(key, slice) else unknown_part(text_of(value))

    def _attribute(self, node: ast.Attribute) -> Any:
        if (
            isinstance(node.value, ast.Name)
            and f"{node.value.id}.{node.attr}" in self.names
        ):
            return self.names[f"{node.value.id}.{node.attr}"]
        value = self.visit(node.value)
        if isinstance(value, Ref) and value.bound is None:
            name = f"{value.name}.{node.attr}"
            return self.constants[name] if name in self.constants else Ref(name)
        if node.attr in _TEXT_ATTRIBUTES:
            return text_of(value)
        return Ref(f"value.{node.attr}", UNKNOWN if value is None else value)

    def _call(self, node: ast.Call) -> Any:
        function = self.visit(node.func)
        args = self._values(node.args)
        return self.invoke(
            function,
            args,
            {one.arg or "": self.visit(one.value) for one in node.keywords},
        )


def picks(tests: list[ast.expr]) -> bool:
    """Whether a condition chooses files by their names. `if x.is_file()` does not."""
    nodes = [node for test in tests for node in ast.walk(test)]
    kinds = any(
        isinstance(node, ast.Attribute) and node.attr in _FILE_TESTS for node in nodes
    )
    return any(isinstance(node, ast.Name) for node in nodes) and not kinds


# -- where code comes from: -c, -m, a file of this command, standard input


def scan_python(call: Call, code: str, argv: list[str]) -> str | None:
    """Evaluate code. Returns what it prints; None if it could not be parsed."""
    state = call.state
    call.state = state.fork()
    try:
        with call.machine.under(f"{call.name} (python)"):
            for effect, signs in tables()["language"]["python"]["words"].items():
                if all(expressions.search(sign, code) for sign in signs):
                    call.emit(effect)
            scanner = PythonScan(call, argv)
            if not scanner.run(code):
                return None
    finally:
        call.state = state
    return scanner.out or UNKNOWN


@program("python python2 python3 pypy pypy3 ipython pythonw micropython")
def _python(call: Call) -> str | None:
    args = [drop_unset(arg) for arg in call.args]
    for index, arg in enumerate(args):
        if found := re.fullmatch(r"-[BEIOPSbdiqsuvx]*([cm])(.*)", arg, re.S):
            text = found[2] or (call.args[index + 1] if index + 1 < len(args) else "")
            rest = call.args[index + (1 if found[2] else 2) :]
            if found[1] == "c":
                return call.scan("python", unglob(text), rest)
            return _module(call, drop_unset(text), rest)
        if arg == "-":
            return _stdin_code(call, call.args[index + 1 :])
        if not arg.startswith("-") and args[index - 1] not in ("-W", "-X"):
            return call.run_code("python", call.args[index:])
    return _stdin_code(call, [])


def _stdin_code(call: Call, rest: list[str]) -> str | None:
    return (
        call.scan("python", call.stdin, rest) if call.stdin.strip(FILE + "\n") else None
    )


def _module(call: Call, module: str, rest: list[str]) -> str | None:
    """Run a module: one that this command wrote, or one that is known as a program."""
    for path in (".py", "/__main__.py"):
        written = call.machine.read_file(module.replace(".", "/") + path, call.state)
        if written:
            call.scan("python", written, rest)
    return call.run([module, *rest]) if call.is_program(module) else None
