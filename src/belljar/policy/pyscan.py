"""Python code: a small abstract evaluator over `ast`.

Strings are folded, names and imports followed, functions called; whatever reaches a call that runs, deletes, writes,
reads or sends becomes an effect. What each call does is in pycalls.py and, as data, in languages.toml.
"""

import ast
import re
from typing import Any

from .call import Call
from .marks import MAX_TEXT, NETWORK, UNKNOWN, clip, known
from .parser import TooComplex
from .pycalls import LOOP_LIMIT, MAX_DEPTH, library, method
from .pyvalues import Ref, bounded, formatted, many, part, picks, text_of

MAX_STEPS = 20_000
_STARRED = "system popen remove unlink rmtree fork kill run call check_output Popen urlopen b64decode execvp Path"
_TEXTS = ("text", "content", "stdout", "parent", "data")


class PythonScan:
    call: Call
    looping: bool

    def __init__(self, call: Call, argv: list[str] | None = None) -> None:
        self.call, self.out, self.depth, self.steps = call, "", 0, 0
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.functions: dict[str, Any] = {}  # functions, methods and lambdas by their name
        self.classes: set[str] = set()
        self.looping, self.picking = False, 0  # inside a loop; inside conditions that pick some files out of all
        self.constants: dict[str, Any] = {
            "sys.argv": ["-c", *(argv or [])], "os.sep": "/", "sys.executable": "/usr/bin/python3",
            "os.curdir": ".", "os.pardir": "..", "sys.stdin": call.stdin.splitlines() or UNKNOWN,
        }  # fmt: skip

    def run(self, code: str) -> bool:
        """Whether the code could be read."""
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        try:
            self.body(tree.body)
        except RecursionError:
            self.call.emit("exec.unseen", "python")
        return True

    def say(self, text: str) -> str:
        self.out = clip(self.out + text)
        return UNKNOWN

    def invoke(self, function: Ref, args: list[Any], words: dict[str, Any]) -> Any:
        name, own = function.name, function.name.removeprefix("value.")
        if self.depth < MAX_DEPTH:
            if name in self.classes:  # a class: its __init__, and whatever else Python calls by itself
                for special in [node for key, node in self.functions.items() if key.startswith("__")]:
                    self.user(special, [UNKNOWN, *args], words)
                return Ref("instance", UNKNOWN)
            if own in self.functions:
                return self.user(self.functions[own], args if own == name else [function.bound, *args], words)
        if function.bound is not None:
            return method(self, own, function.bound, args, words)
        return library(self, re.sub(r"^(__)?builtins(__)?\.", "", name), args, words)

    def user(self, node: Any, args: list[Any], words: dict[str, Any]) -> Any:
        self.depth += 1
        given, names = node.args, node.args.args
        defaults = zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True)
        self.names.update({parameter.arg: self.value(default) for parameter, default in defaults})
        self.names.update({parameter.arg: value for parameter, value in zip(names, args, strict=False)})
        if given.vararg:
            self.names[given.vararg.arg] = args[len(names) :]
        self.names |= {**words, "return": None}
        if isinstance(node, ast.Lambda):
            self.names["return"] = self.value(node.body)
        else:
            self.body(node.body)
        self.depth -= 1
        return self.names.get("return")

    # -- statements

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooComplex("its Python code is too long to judge")
        if self.steps % 64 == 0:
            self.call.machine.tick()

    def statement(self, node: ast.AST) -> None:
        self._step()
        handler = getattr(self, "_" + type(node).__name__.lower(), None)
        if handler:
            handler(node)
        for child in ast.iter_child_nodes(node) if not handler else ():
            self.value(child) if isinstance(child, ast.expr) else self.statement(child)

    def _import(self, node: ast.Import) -> None:
        for item in node.names:
            self._load(item.name)
            top = item.name.split(".")[0]
            self.names[item.asname or top] = Ref(item.name if item.asname else top)

    def _importfrom(self, node: ast.ImportFrom) -> None:
        self._load(node.module or "")
        for item in node.names:
            for name in _STARRED.split() if item.name == "*" else [item.asname or item.name]:
                self.names[name] = Ref(f"{node.module}.{name if item.name == '*' else item.name}")

    def _load(self, module: str) -> None:
        """A module that this command wrote."""
        written = self.call.machine.read_file(module.replace(".", "/") + ".py", self.call.state) or ""
        if NETWORK in written:
            self.call.emit("exec.network", module)
        if written and known(written) and self.depth < MAX_DEPTH:
            self.depth += 1
            self.run(written)
            self.depth -= 1
            self.functions |= {f"{module}.{name}": node for name, node in self.functions.items() if "." not in name}

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._bind(target, value)

    def _augassign(self, node: ast.AugAssign) -> None:
        self._bind(node.target, self._add(self.value(node.target), self.value(node.value)))

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Subscript):
            held, key = self.value(target.value), text_of(self.value(target.slice))
            if isinstance(held, Ref) and held.name == "os.environ":
                self.call.machine.set(key, text_of(value), self.call.state)
            elif isinstance(held, dict):
                held[key] = value
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            self.names[f"{target.value.id}.{target.attr}"] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = value if isinstance(value, list) else [value] * len(target.elts)
            for element, item in zip(target.elts, items, strict=False):
                self._bind(element, item)

    def _classdef(self, node: ast.ClassDef) -> None:
        self.classes.add(node.name)
        self.body(node.body)

    def _functiondef(self, node: ast.FunctionDef) -> None:
        self.functions[node.name] = node
        self.names.pop(node.name, None)

    _asyncfunctiondef = _functiondef

    def _for(self, node: ast.For) -> None:
        for item in many(self.value(node.iter))[:LOOP_LIMIT]:
            self._bind(node.target, item)
            self.body(node.body)
        self.body(node.orelse)

    _asyncfor = _for

    def _if(self, node: ast.If) -> None:
        """A test on the loop's variable picks some files out of all."""
        self.value(node.test)
        chosen = picks(node.test)
        self.picking += chosen
        self.body([*node.body, *node.orelse])
        self.picking -= chosen

    def _while(self, node: ast.While) -> None:
        self.value(node.test)
        looping, self.looping = self.looping, True
        self.body(node.body)
        self.looping = looping

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            self._bind(item.optional_vars, value) if item.optional_vars else None
        self.body(node.body)

    def _return(self, node: ast.Return) -> None:
        self.names["return"] = self.value(node.value)

    # -- values

    def value(self, node: ast.AST | None) -> Any:
        self._step()
        if node is None:
            return None
        handler = getattr(self, "_v_" + type(node).__name__.lower(), None)
        if handler:
            return bounded(handler(node))
        values = [self.value(child) for child in ast.iter_child_nodes(node)]
        return values[0] if isinstance(node, ast.Await | ast.NamedExpr | ast.IfExp | ast.Starred) else UNKNOWN

    def _values(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            found += many(self.value(node)) if isinstance(node, ast.Starred) else [self.value(node)]
        return found

    def _v_constant(self, node: ast.Constant) -> Any:
        return node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value

    def _v_name(self, node: ast.Name) -> Any:
        return self.names[node.id] if node.id in self.names else Ref(node.id)

    def _v_joinedstr(self, node: ast.JoinedStr) -> str:
        text = ""
        for piece in node.values:
            text = clip(text + text_of(self.value(piece.value if isinstance(piece, ast.FormattedValue) else piece)))
        return text

    def _v_list(self, node: ast.List) -> list[Any]:
        return self._values(node.elts)

    _v_tuple = _v_set = _v_list

    def _v_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        return -value if isinstance(node.op, ast.USub) and isinstance(value, int) else value

    def _v_binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Add):
            return self._add(left, right)
        if isinstance(node.op, ast.Div) and isinstance(left, str):
            return right if text_of(right).startswith("/") else f"{left.rstrip('/')}/{text_of(right)}"
        if isinstance(node.op, ast.Mult) and isinstance(left, str) and isinstance(right, int):
            return clip(left * min(right, MAX_TEXT // max(1, len(left)) + 1))
        if isinstance(node.op, ast.Mod) and isinstance(left, str):
            return formatted(left, right if isinstance(right, list) else [right])
        return UNKNOWN

    @staticmethod
    def _add(left: Any, right: Any) -> Any:
        if isinstance(left, list) and isinstance(right, list):
            return bounded(left + right)
        whole = isinstance(left, int) and isinstance(right, int)
        return left + right if whole else clip(text_of(left) + text_of(right))

    def _v_listcomp(self, node: ast.ListComp) -> list[Any]:
        looping, self.looping = self.looping, True
        found = self._generated(node.elt, node.generators)
        self.looping = looping
        return found

    _v_generatorexp = _v_setcomp = _v_listcomp

    def _generated(self, element: ast.expr, generators: list[ast.comprehension]) -> list[Any]:
        if not generators:
            return [self.value(element)]
        found: list[Any] = []
        for item in many(self.value(generators[0].iter))[:LOOP_LIMIT]:
            self._bind(generators[0].target, item)
            chosen = any(picks(test) for test in generators[0].ifs)
            self.picking += chosen
            found += self._generated(element, generators[1:])
            self.picking -= chosen
        return found

    def _v_lambda(self, node: ast.Lambda) -> Ref:
        self.functions[f"<lambda {id(node)}>"] = node
        return Ref(f"<lambda {id(node)}>")

    def _v_dict(self, node: ast.Dict) -> dict[Any, Any]:
        items = zip(node.keys, node.values, strict=True)
        return {text_of(self.value(key)): self.value(one) for key, one in items}

    def _v_subscript(self, node: ast.Subscript) -> Any:
        value = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [self.value(one) for one in (node.slice.lower, node.slice.upper, node.slice.step)]
            whole = isinstance(value, str | list) and all(one is None or isinstance(one, int) for one in bounds)
            return value[slice(*bounds)] if whole and 0 not in bounds[2:] else value
        key = self.value(node.slice)
        if isinstance(value, Ref) and value.name == "os.environ":
            return text_of(self.call.state.get(text_of(key)))
        if isinstance(value, Ref) and NETWORK not in text_of(value):
            return Ref(f"{value.name.removesuffix('.__dict__').removesuffix('.modules')}.{text_of(key)}")
        if isinstance(value, dict):
            return value.get(text_of(key), UNKNOWN)
        if isinstance(value, list | str) and isinstance(key, int) and -len(value) <= key < len(value):
            return value[key]
        return NETWORK if NETWORK in text_of(value) else part(value)

    def _v_attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in self.names:
            return self.names[f"{node.value.id}.{node.attr}"]
        value = self.value(node.value)
        if isinstance(value, Ref) and value.bound is None:
            name = f"{value.name}.{node.attr}"
            return self.constants[name] if name in self.constants else Ref(name)
        return text_of(value) if node.attr in _TEXTS else Ref(f"value.{node.attr}", UNKNOWN if value is None else value)

    def _v_call(self, node: ast.Call) -> Any:
        function, args = self.value(node.func), self._values(node.args)
        words = {keyword.arg or "": self.value(keyword.value) for keyword in node.keywords}
        return self.invoke(function, args, words) if isinstance(function, Ref) else UNKNOWN
