"""Python one-liners and scripts: a small abstract evaluator over `ast`.

Strings are folded (concatenation, join, chr, slices, base64, hex, rot13, zlib), names and imports followed, functions
called; whatever reaches a call that runs, deletes, writes, reads or sends becomes an effect.
"""

import ast
import re
from typing import Any

from .call import Call
from .marks import ATOM, MAX_TEXT, NETWORK, SENSITIVE, UNKNOWN, clip, known
from .parser import TooComplex
from .pylibrary import Library
from .pyvalues import Ref, _arithmetic, _many, _part, _percent, _picks, _text, bounded, mapping
from .quoting import listed

_LOOP_LIMIT = 256
_ROUTES = re.compile(r"(api_)?route|get|post|put|patch|websocket(_route)?|ws|any|expose|on|event")


class PythonScan(Library):
    def __init__(self, call: Call, argv: list[str] | None = None) -> None:
        self.call, self.out, self.depth, self.steps = call, "", 0, 0
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda] = {}
        self.argv = argv or []
        self.classes: set[str] = set()
        self.methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.looping, self.picking = False, 0
        self.held: list[str] = []
        self.handlers: list[Any] = []  # what a server calls with what others send
        self.spawned: list[str] = []

    def run(self, code: str) -> bool:
        """Whether the code could be read."""
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        self.held += [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        try:
            self.body(tree.body)
            for node in self.handlers[:50] if not self.depth else []:
                self._user(node, [NETWORK] * len(node.args.args), {})
        except RecursionError:
            self.call.emit("exec.unseen", "python")
        return True

    def run_hooks(self) -> None:
        """What a test framework would call: by name, and what is decorated for it."""
        for name, node in [*self.functions.items(), *self.methods.items()]:
            if not isinstance(node, ast.Lambda) and (
                re.match(r"(test|pytest|setup|teardown)_?|(setUp|tearDown)", name) or node.decorator_list
            ):
                self._user(node, [f"/tmp/{ATOM}" if "tmp" in p.arg else UNKNOWN for p in node.args.args], {})

    # -- statements ----------------------------------------------------------------------------------------------

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > 20_000:
            raise TooComplex("its Python code is too long to judge")
        if self.steps % 64 == 0:
            self.call.machine.tick()

    def statement(self, node: ast.stmt) -> Any:
        self._step()
        handler = getattr(self, "_" + type(node).__name__.lower(), None)
        if handler:
            return handler(node)
        for child in ast.iter_child_nodes(node):
            self.statement(child) if isinstance(child, ast.stmt) else self.value(child) if isinstance(
                child, ast.expr
            ) else self._inner(child)
        return None

    def _inner(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self.statement(child) if isinstance(child, ast.stmt) else self.value(child) if isinstance(
                child, ast.expr
            ) else self._inner(child)

    def _import(self, node: ast.Import) -> None:
        for item in node.names:
            self._load(item.name)
            self.names[item.asname or item.name.split(".")[0]] = Ref(
                item.name if item.asname else item.name.split(".")[0]
            )

    def _load(self, module: str) -> None:
        written = self.call.machine.read_file(module.replace(".", "/") + ".py", self.call.state)
        self.call.emit("exec.network", module) if NETWORK in (written or "") else None
        if written and known(written) and self.depth < 4:
            self.depth += 1
            self.run(written)
            self.depth -= 1
            self.functions.update(
                {f"{module}.{name}": node for name, node in self.functions.items() if "." not in name}
            )

    def _importfrom(self, node: ast.ImportFrom) -> None:
        self._load(node.module or "")
        for item in node.names:
            if item.name == "*":
                for name in listed(
                    "system popen remove unlink rmtree fork kill run call check_output Popen urlopen b64decode "
                    "execv execvp spawn setuid Path"
                ):
                    self.names.setdefault(name, Ref(f"{node.module}.{name}"))
            self.names[item.asname or item.name] = Ref(f"{node.module}.{item.name}")

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._bind(target, value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self._bind(node.target, self.value(node.value))

    def _augassign(self, node: ast.AugAssign) -> None:
        old, new = self.value(node.target), self.value(node.value)
        if isinstance(new, dict):
            self._set_environment(new) if _text(old) == SENSITIVE else None
        self._bind(node.target, mapping(old, new) if isinstance(new, dict) else self._add(old, new))

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif (
            isinstance(target, ast.Subscript)
            and isinstance(self.value(target.value), Ref)
            and self.value(target.value).name == "os.environ"
        ):
            self.call.machine.set(_text(self.value(target.slice)), _text(value), self.call.state)
        elif isinstance(target, ast.Subscript) and isinstance(held := self.value(target.value), dict):
            held[_text(self.value(target.slice))] = value
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
                if re.fullmatch(r"do_[A-Z]+|handle\w*|(on_)?(get|post|put|data_received|message)", statement.name):
                    self.handlers += (
                        [statement]
                        if any("Handler" in ast.dump(base) or "Protocol" in ast.dump(base) for base in node.bases)
                        else []
                    )
            else:
                self.statement(statement)
            for target in statement.targets if isinstance(statement, ast.Assign) else []:
                if isinstance(target, ast.Name):
                    self.names[f"self.{target.id}"] = self.names[target.id]

    def _functiondef(self, node: ast.FunctionDef) -> None:
        self.functions[node.name] = node
        for decorator in node.decorator_list:
            self.value(decorator)
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(function, ast.Attribute) and _ROUTES.fullmatch(function.attr):
                self.handlers.append(node)
        self.names.pop(node.name, None)

    _asyncfunctiondef = _functiondef

    def _for(self, node: ast.For) -> None:
        items = self.value(node.iter)
        for item in (
            items
            if isinstance(items, list)
            else list(items)
            if isinstance(items, str) and known(items)
            else [_part(items)]
        )[:_LOOP_LIMIT]:
            self._bind(node.target, item)
            self.body(node.body)
        self.body(node.orelse)

    def _if(self, node: ast.If) -> None:
        """A test on the loop's variable picks some files out of all."""
        self.value(node.test)
        picks = _picks(node.test)
        self.picking += picks
        self.body(node.body)
        self.body(node.orelse)
        self.picking -= picks

    def _while(self, node: ast.While) -> None:
        self.value(node.test)
        looping, self.looping = self.looping, True
        self.body(node.body)
        self.looping = looping

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars:
                self._bind(item.optional_vars, value)
        self.body(node.body)

    def _return(self, node: ast.Return) -> None:
        self.names["return"] = self.value(node.value) if node.value else None

    # -- values --------------------------------------------------------------------------------------------------

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
        for part in node.values:
            text = clip(text + _text(self.value(part.value if isinstance(part, ast.FormattedValue) else part)))
        return text

    def _v_list(self, node: ast.List) -> list[Any]:
        return [
            item
            for element in node.elts
            for item in (
                [self.value(element)] if not isinstance(element, ast.Starred) else _many(self.value(element.value))
            )
        ]

    _v_tuple = _v_set = _v_list

    def _v_namedexpr(self, node: ast.NamedExpr) -> Any:
        value = self.value(node.value)
        self._bind(node.target, value)
        return value

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

    def _v_binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.BitOr) and isinstance(right, dict):
            return mapping(left, right)
        if isinstance(node.op, ast.Add):
            return self._add(left, right)
        if isinstance(node.op, ast.Div) and isinstance(left, str):
            return right if _text(right).startswith("/") else f"{left.rstrip('/')}/{_text(right)}"
        if isinstance(left, int) and isinstance(right, int):
            return _arithmetic(node.op, left, right)
        if isinstance(node.op, ast.Mult) and isinstance(left, str) and isinstance(right, int):
            return clip(left * min(right, MAX_TEXT // max(1, len(left)) + 1))
        if isinstance(node.op, ast.Mod) and isinstance(left, str):
            return _percent(left, right)
        return UNKNOWN

    @staticmethod
    def _add(left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if isinstance(left, list) and isinstance(right, list):
            return bounded(left + right)
        return clip(_text(left) + _text(right))

    def _v_listcomp(self, node: ast.ListComp) -> list[Any]:
        looping, self.looping = self.looping, True
        found = self._generated(node.elt, node.generators)
        self.looping = looping
        return found

    def _generated(self, element: ast.expr, generators: list[ast.comprehension]) -> list[Any]:
        if not generators:
            return [self.value(element)]
        found: list[Any] = []
        for item in _many(self.value(generators[0].iter))[:_LOOP_LIMIT]:
            self._bind(generators[0].target, item)
            for test in generators[0].ifs:
                self.value(test)
            picks = any(_picks(test) for test in generators[0].ifs)
            self.picking += picks
            found += self._generated(element, generators[1:])
            self.picking -= picks
        return found

    _v_generatorexp = _v_setcomp = _v_listcomp

    def _v_lambda(self, node: ast.Lambda) -> Ref:
        name = f"<lambda {id(node)}>"
        self.functions[name] = node
        return Ref(name)

    def _v_dict(self, node: ast.Dict) -> dict[Any, Any]:
        items = zip(node.keys, node.values, strict=True)
        return mapping(
            *({_text(self.value(key)): self.value(item)} if key else self.value(item) for key, item in items)
        )

    def _v_dictcomp(self, node: ast.DictComp) -> dict[str, Any]:
        return mapping(self._generated(ast.Tuple([node.key, node.value]), node.generators))

    def _v_subscript(self, node: ast.Subscript) -> Any:
        value = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [
                self.value(part) if part else None for part in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            whole = isinstance(value, str | list) and all(bound is None or isinstance(bound, int) for bound in bounds)
            return value[slice(*bounds)] if whole and (not isinstance(value, str) or known(value)) else value
        key = self.value(node.slice)
        value = NETWORK if isinstance(value, Ref) and value.bound is not None and NETWORK in _text(value) else value
        if isinstance(value, Ref):
            return (
                self._environ(_text(key))
                if value.name == "os.environ"
                else Ref(f"{value.name.removesuffix('.__dict__').removesuffix('.modules')}.{_text(key)}")
            )
        if isinstance(value, dict):
            return value.get(_text(key), UNKNOWN)
        if isinstance(value, list | str) and isinstance(key, int) and -len(value) <= key < len(value):
            return value[key]
        return _part(value)

    def _v_attribute(self, node: ast.Attribute) -> Any:
        if isinstance(node.value, ast.Name) and f"{node.value.id}.{node.attr}" in self.names:
            return self.names[f"{node.value.id}.{node.attr}"]
        value = self.value(node.value)
        if isinstance(value, Ref) and value.bound is None:
            known_names: dict[str, Any] = {
                "sys.argv": ["-c", *self.argv],
                "os.sep": "/",
                "sys.executable": "/usr/bin/python3",
                "os.path.sep": "/",
                "os.curdir": ".",
                "os.pardir": "..",
                "sys.stdin": self.call.stdin.splitlines() or UNKNOWN,
                "os.linesep": "\n",
            }
            if f"{value.name}.{node.attr}" in known_names:
                return known_names[f"{value.name}.{node.attr}"]
            return Ref(f"{value.name}.{node.attr}")
        if node.attr in ("pw_dir", "pw_name") and isinstance(value, list) and len(value) == 7:
            return value[5 if node.attr == "pw_dir" else 0]
        if node.attr in ("text", "content", "stdout", "parent", "data"):
            return value if isinstance(value, str) else _text(value)
        return Ref(f"value.{node.attr}", value if value is not None else UNKNOWN)

    def _v_call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        args: list[Any] = []
        for arg in node.args:
            value = self.value(arg.value if isinstance(arg, ast.Starred) else arg)
            args += _many(value) if isinstance(arg, ast.Starred) else [value]
        words = {keyword.arg or "": self.value(keyword.value) for keyword in node.keywords}
        if not isinstance(function, Ref):
            return UNKNOWN
        return self.invoke(function, args, words)
