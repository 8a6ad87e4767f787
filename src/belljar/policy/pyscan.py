"""Python one-liners and scripts: a small abstract evaluator over `ast`.

Strings are folded (concatenation, join, chr, slices, base64, hex, rot13, zlib), names and imports followed, functions
called; whatever reaches a call that runs, deletes, writes, reads or sends becomes an effect.
"""

import ast
import re
from typing import Any

from .call import Call
from .machine import SUSPECT
from .marks import ATOM, MAX_TEXT, NETWORK, UNKNOWN, clip, known
from .parser import TooComplex
from .pycalls import LOOP_LIMIT, MAX_DEPTH, library, method
from .pyvalues import Ref, arithmetic, bounded, formatted, many, mapping, part, picks, text_of

MAX_STEPS = 20_000
_STARRED = (
    "system popen remove unlink rmtree fork kill run call check_output Popen urlopen b64decode execv execvp setuid Path"
)
_TEXTS = ("text", "content", "stdout", "parent", "data")


class PythonScan:
    call: Call
    looping: bool
    out: str

    def __init__(self, call: Call, argv: list[str] | None = None) -> None:
        self.call, self.out, self.depth, self.steps = call, "", 0, 0
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.functions: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}
        self.classes: set[str] = set()
        self.argv = argv or []
        self.looping, self.picking = False, 0
        self.held: list[str] = []
        self.spawned: list[str] = []
        self.constants: dict[str, Any] = {
            "sys.argv": ["-c", *self.argv], "os.sep": "/", "sys.executable": "/usr/bin/python3", "os.path.sep": "/",
            "os.curdir": ".", "os.pardir": "..", "sys.stdin": call.stdin.splitlines() or UNKNOWN, "os.linesep": "\n",
        }  # fmt: skip

    def run(self, code: str) -> bool:
        """Whether the code could be read."""
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        nodes = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        self.held += [text for text in nodes if isinstance(text, str)]
        try:
            self.body(tree.body)
        except RecursionError:
            self.call.emit("exec.unseen", "python")
        return True

    def run_hooks(self) -> None:
        """What a test framework would call: by name, and what is decorated for it."""
        for name, node in [*self.functions.items(), *self.methods.items()]:
            called = re.match(r"(test|pytest|setup|teardown)_?|(setUp|tearDown)", name)
            if not isinstance(node, ast.Lambda) and (called or node.decorator_list):
                self.user(node, [f"/tmp/{ATOM}" if "tmp" in p.arg else UNKNOWN for p in node.args.args], {})

    def say(self, text: str) -> str:
        self.out = clip(self.out + text)
        return UNKNOWN

    def run_text(self, text: str) -> str:
        """Run a command that the code gives to a shell."""
        if text.strip(UNKNOWN) == "" and UNKNOWN in text:
            self.call.emit("exec.script", text)
            for suspect in [line.partition("=")[2] or line for held in self.held for line in held.splitlines()]:
                self.call.shell(suspect) if SUSPECT.match(suspect) else None
            return UNKNOWN
        return self.call.shell(text)

    def invoke(self, function: Ref, args: list[Any], words: dict[str, Any]) -> Any:
        name = function.name
        for text in [text_of(value) for value in [*args, *words.values()]] if name != "print" else []:
            if text.endswith(".sock") and "engine" in self.call.locate(re.sub(r"^[\w+]+://?(?=/)", "", text))[2]:
                self.call.emit("kernel.engine", text)
        if self.depth < MAX_DEPTH:
            if name in self.classes:  # __init__, and what may be called without a call: __exit__, __del__, __str__
                for special in [node for name, node in self.methods.items() if re.fullmatch(r"__\w+__", name)]:
                    self.user(special, [UNKNOWN, *args], words)
                return Ref("instance", UNKNOWN)
            if name.startswith("value.") and name[6:] in self.methods:
                return self.user(self.methods[name[6:]], [function.bound, *args], words)
            if name in self.functions:
                return self.user(self.functions[name], args, words)
        if function.bound is not None:
            return method(self, name.removeprefix("value."), function.bound, args, words)
        return library(self, re.sub(r"^(__)?builtins(__)?\.", "", name), args, words)

    def user(self, node: Any, args: list[Any], words: dict[str, Any]) -> Any:
        self.depth += 1
        given, names = node.args, node.args.args
        defaults = list(zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True))
        defaults += [(name, value) for name, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]
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

    def statement(self, node: ast.AST) -> Any:
        self._step()
        handler = getattr(self, "_" + type(node).__name__.lower(), None)
        return handler(node) if handler else self._inner(node)

    def _inner(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self.value(child) if isinstance(child, ast.expr) else self.statement(child)

    def _import(self, node: ast.Import) -> None:
        for item in node.names:
            self._load(item.name)
            top = item.name.split(".")[0]
            self.names[item.asname or top] = Ref(item.name if item.asname else top)

    def _load(self, module: str) -> None:
        written = self.call.machine.read_file(module.replace(".", "/") + ".py", self.call.state) or ""
        if NETWORK in written:
            self.call.emit("exec.network", module)
        if written and known(written) and self.depth < 4:
            self.depth += 1
            self.run(written)
            self.depth -= 1
            own = {f"{module}.{name}": node for name, node in self.functions.items() if "." not in name}
            self.functions.update(own)

    def _importfrom(self, node: ast.ImportFrom) -> None:
        self._load(node.module or "")
        for item in node.names:
            for name in _STARRED.split() if item.name == "*" else [item.asname or item.name]:
                self.names[name] = Ref(f"{node.module}.{name if item.name == '*' else item.name}")

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._bind(target, value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        self._bind(node.target, self.value(node.value)) if node.value else None

    def _augassign(self, node: ast.AugAssign) -> None:
        old, new = self.value(node.target), self.value(node.value)
        self._bind(node.target, mapping(old, new) if isinstance(new, dict) else self._add(old, new))

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
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.methods[statement.name] = statement
                continue
            self.statement(statement)
            for target in statement.targets if isinstance(statement, ast.Assign) else []:
                if isinstance(target, ast.Name):
                    self.names[f"self.{target.id}"] = self.names[target.id]

    def _functiondef(self, node: ast.FunctionDef) -> None:
        self.functions[node.name] = node
        for decorator in node.decorator_list:
            self.value(decorator)
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
        self.body(node.body)
        self.body(node.orelse)
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
        self.names["return"] = self.value(node.value) if node.value else None

    # -- values

    def value(self, node: ast.AST | None) -> Any:
        self._step()
        if node is None:
            return UNKNOWN
        handler = getattr(self, "_v_" + type(node).__name__.lower(), None)
        if handler:
            return bounded(handler(node))
        for child in ast.iter_child_nodes(node):
            self.value(child)
        return UNKNOWN

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
        found: list[Any] = []
        for element in node.elts:
            found += many(self.value(element.value)) if isinstance(element, ast.Starred) else [self.value(element)]
        return found

    _v_tuple = _v_set = _v_list

    def _v_ifexp(self, node: ast.IfExp) -> Any:
        self.value(node.test)
        first, second = self.value(node.body), self.value(node.orelse)
        return first if first is not None else second

    def _v_boolop(self, node: ast.BoolOp) -> Any:
        values = [self.value(item) for item in node.values]
        return next((value for value in values if isinstance(value, str)), values[-1])

    def _v_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        return -value if isinstance(node.op, ast.USub) and isinstance(value, int) else value

    def _v_await(self, node: ast.Await) -> Any:
        return self.value(node.value)

    def _v_namedexpr(self, node: ast.NamedExpr) -> Any:
        self._bind(node.target, self.value(node.value))
        return self.value(node.target)

    def _v_binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, int) and isinstance(right, int):
            return arithmetic(node.op, left, right)
        if isinstance(node.op, ast.BitOr) and isinstance(right, dict):
            return mapping(left, right)
        if isinstance(node.op, ast.Add):
            return self._add(left, right)
        if isinstance(node.op, ast.Div) and isinstance(left, str):
            return right if text_of(right).startswith("/") else f"{left.rstrip('/')}/{text_of(right)}"
        if isinstance(node.op, ast.Mult) and isinstance(left, str) and isinstance(right, int):
            return clip(left * min(right, MAX_TEXT // max(1, len(left)) + 1))
        if isinstance(node.op, ast.Mod) and isinstance(left, str):
            return formatted(left, right if isinstance(right, list) else [right], {}, percent=True)
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
            for test in generators[0].ifs:
                self.value(test)
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
        return mapping(*({text_of(self.value(key)): self.value(one)} if key else self.value(one) for key, one in items))

    def _v_subscript(self, node: ast.Subscript) -> Any:
        value = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [self.value(one) if one else None for one in (node.slice.lower, node.slice.upper, node.slice.step)]
            whole = isinstance(value, str | list) and all(one is None or isinstance(one, int) for one in bounds)
            return value[slice(*bounds)] if whole and (not isinstance(value, str) or known(value)) else value
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
        if node.attr in ("pw_dir", "pw_name") and isinstance(value, list) and len(value) == 7:
            return value[5 if node.attr == "pw_dir" else 0]
        if node.attr in _TEXTS:
            return text_of(value)
        return Ref(f"value.{node.attr}", value if value is not None else UNKNOWN)

    def _v_call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        args: list[Any] = []
        for arg in node.args:
            args += many(self.value(arg.value)) if isinstance(arg, ast.Starred) else [self.value(arg)]
        words = {keyword.arg or "": self.value(keyword.value) for keyword in node.keywords}
        return self.invoke(function, args, words) if isinstance(function, Ref) else UNKNOWN
