"""Reads the async client's public face for gen_sync_client: which classes there are, and which need a twin."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "noosphere.client"

COPIED = {"FailedPart"}
"""Parts of exceptions that the sync client copies by hand, with twins in them."""

# A channel belongs to the event loop that made it, which is never the sync client's; so do what sees its calls.
LEFT_OUT = {("connect", "channel"), ("connect", "interceptors")}
"""Parameters that cannot exist here, by function and name."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Untranslatable(Exception):
    """Something in the async client that no rule covers."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}; change the async client, or give scripts/gen_sync_client.py a rule for it")


class Symbol(NamedTuple):
    """A name where it is defined.

    Attributes:
        module: the module's full name.
        name: its name there.
    """

    module: str
    name: str

    @property
    def ours(self) -> bool:
        """Whether it is defined in the async client."""
        return self.module.startswith(PACKAGE + ".")

    @property
    def value(self) -> Any:
        """What the name stands for."""
        return getattr(importlib.import_module(self.module), self.name)


class Kind(Enum):
    """What becomes of a class.

    An error is handed out as a copy of the same class with twins in it; a carrier is an exception that may be
    one, or hold one, without saying so.
    """

    HANDLE = auto()
    DATA = auto()
    ERROR = auto()
    CARRIER = auto()
    ALIAS = auto()
    ITSELF = auto()


class Attribute(NamedTuple):
    """A public attribute of an object.

    Attributes:
        name: its name.
        annotation: its type.
        default: its default, if it is a field of plain data that has one.
        doc: what the class says about it.
    """

    name: str
    annotation: ast.expr
    default: ast.expr | None
    doc: str


@dataclass
class Method:
    """A public method, with its overloads."""

    node: Function
    overloads: list[Function] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @property
    def is_property(self) -> bool:
        """Whether it is read like an attribute."""
        return "property" in decorators(self.node)

    @property
    def opens_block(self) -> bool:
        """Whether its caller enters a block with what it returns."""
        return "asynccontextmanager" in decorators(self.node)


@cache
def tree_of(module: str) -> ast.Module:
    """Returns a module's syntax tree."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text())


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _top_level(statement.body)
        else:
            yield statement


@cache
def definitions(module: str) -> dict[str, ast.stmt]:
    """Returns what a module defines or imports, by name."""
    found: dict[str, ast.stmt] = {}
    for statement in _top_level(tree_of(module).body):
        match statement:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found[statement.name] = statement
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = statement
            case ast.Import() | ast.ImportFrom():
                found |= {alias.asname or alias.name: statement for alias in statement.names}
    return found


@cache
def resolve(module: str, name: str) -> Symbol:
    """Returns where ``name``, as written in ``module``, is defined."""
    match definitions(module).get(name):
        case None:
            return Symbol("builtins", name)
        case ast.ImportFrom(level=level, module=source, names=names):
            original = next(alias.name for alias in names if (alias.asname or alias.name) == name)
            if level == 0:
                assert source is not None
                return Symbol(source, original)
            return resolve(f"{PACKAGE}.{source}", original)
        case ast.Import():
            return Symbol(name, "")
        case _:
            return Symbol(module, name)


def node_of(symbol: Symbol) -> ast.stmt | None:
    """Returns the statement that defines a name of ours."""
    return definitions(symbol.module).get(symbol.name) if symbol.ours else None


def is_type_variable(symbol: Symbol) -> bool:
    """Whether a name stands for a TypeVar or ParamSpec."""
    match node_of(symbol):
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
            return True
    return False


def decorators(node: Function | ast.ClassDef) -> list[str]:
    """Returns the names of decorators, without arguments."""
    bare = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return [ast.unparse(decorator) for decorator in bare]


def bases(symbol: Symbol) -> list[Symbol]:
    """Returns the bases of a class of ours, without their parameters."""
    node = node_of(symbol)
    assert isinstance(node, ast.ClassDef)
    names = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [resolve(symbol.module, name.id) for name in names if isinstance(name, ast.Name)]


def methods(node: ast.ClassDef) -> list[Method]:
    """Returns the methods that are part of a class's face: public ones, and blocks' and iterators' special ones."""
    special = {"__aenter__", "__aexit__", "__aiter__", "__anext__"}
    found: list[Method] = []
    overloads: list[Function] = []
    for item in node.body:
        if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if item.name.startswith("_") and item.name not in special:
            continue
        if "overload" in decorators(item):
            overloads.append(item)
        else:
            found.append(Method(item, overloads))
            overloads = []
    return found


def attributes(node: ast.ClassDef) -> list[Attribute]:
    """Returns public attributes: a class's annotated ones, and documented ones that its constructor sets."""
    docs = attribute_docs(ast.get_docstring(node) or "")
    found: dict[str, Attribute] = {}
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not _private(item.target.id):
            name = item.target.id
            found[name] = Attribute(name, item.annotation, item.value, docs.get(name, ""))
    constructor = next((i for i in node.body if isinstance(i, ast.FunctionDef) and i.name == "__init__"), None)
    if constructor is not None:
        arguments = {a.arg: a.annotation for a in (*constructor.args.args, *constructor.args.kwonlyargs)}
        for statement in ast.walk(constructor):
            match statement:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                    annotation = arguments.get(value.id) if isinstance(value, ast.Name) else None
                case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=annotation):
                    pass
                case _:
                    continue
            if not _private(name) and annotation is not None and name not in found:
                found[name] = Attribute(name, annotation, None, docs.get(name, ""))
    return list(found.values())


def undeclared(node: ast.ClassDef) -> set[str]:
    """Returns documented attributes whose types the source does not tell."""
    return set(attribute_docs(ast.get_docstring(node) or "")) - {attribute.name for attribute in attributes(node)}


def attribute_docs(doc: str) -> dict[str, str]:
    """Returns the entries of a docstring's ``Attributes`` section."""
    found: dict[str, str] = {}
    lines = iter(doc.splitlines())
    for line in lines:
        if line.strip() == "Attributes:":
            break
    name = ""
    for line in lines:
        if line and not line.startswith(" "):
            break
        if line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, rest = line.strip().partition(": ")
            found[name] = rest
        elif line.strip():
            found[name] += " " + line.strip()
    return found


def _private(name: str) -> bool:
    return name.startswith("_")


def names_in(node: ast.expr | None, module: str) -> Iterator[Symbol]:
    """Yields what an annotation mentions."""
    if node is None:
        return
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield resolve(module, part.id)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            try:
                yield from names_in(ast.parse(part.value, mode="eval").body, module)
            except SyntaxError:
                continue


def kept_arguments(node: Function) -> ast.arguments:
    """Returns a copy of a function's parameters without those that cannot exist in the sync client."""
    copy = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(copy, (ast.FunctionDef, ast.AsyncFunctionDef))
    kept = [
        (argument, default)
        for argument, default in zip(copy.args.kwonlyargs, copy.args.kw_defaults, strict=True)
        if (node.name, argument.arg) not in LEFT_OUT
    ]
    copy.args.kwonlyargs = [argument for argument, _ in kept]
    copy.args.kw_defaults = [default for _, default in kept]
    return copy.args


def annotations_of(method: Method) -> Iterator[ast.expr]:
    """Yields every annotation of a method and its overloads."""
    for node in (*method.overloads, method.node):
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None:
                yield argument.annotation
        for variadic in (arguments.vararg, arguments.kwarg):
            if variadic is not None and variadic.annotation is not None:
                yield variadic.annotation
        if node.returns is not None:
            yield node.returns


class Face:
    """The async client's public face.

    Attributes:
        names: the public names, in the order of ``__all__``.
        kinds: what becomes of each class and alias that the face reaches.
    """

    def __init__(self) -> None:
        package = importlib.import_module(PACKAGE)
        self.names: list[str] = list(package.__all__)
        self.public = {name: resolve(PACKAGE, name) for name in self.names}
        self._reached = self._reach()
        self._twinned = self._need_twins()
        self.kinds = {symbol: self._kind(symbol) for symbol in self._reached}

    def twinned(self, symbol: Symbol) -> bool:
        """Whether the sync client has something of its own for a name."""
        return symbol in self._twinned

    def mentions_twin(self, node: ast.expr | None, module: str) -> bool:
        """Whether a type mentions something of which the sync client has its own."""
        return any(self.twinned(symbol) for symbol in names_in(node, module))

    def of_kind(self, kind: Kind) -> list[Symbol]:
        """Returns the names of a kind: each after what it is derived from, else by module and place there."""
        left = [symbol for symbol in self._reached if self.kinds[symbol] is kind]
        left.sort(key=lambda symbol: (symbol.module, list(definitions(symbol.module)).index(symbol.name)))
        found: list[Symbol] = []
        while left:
            found += [symbol for symbol in left if not set(self.needs(symbol)) & (set(left) - {symbol})]
            left = [symbol for symbol in left if symbol not in found]
        return found

    def needs(self, symbol: Symbol) -> Iterator[Symbol]:
        """Yields what has to be defined before a name: a class's bases, an alias's parts."""
        return iter(bases(symbol)) if isinstance(node_of(symbol), ast.ClassDef) else self.mentioned(symbol)

    def mentioned(self, symbol: Symbol) -> Iterator[Symbol]:
        """Yields what a name's public signatures mention."""
        match node_of(symbol):
            case ast.ClassDef() as node:
                for base in node.bases:
                    yield from names_in(base, symbol.module)
                for attribute in attributes(node):
                    yield from names_in(attribute.annotation, symbol.module)
                # The methods of an exception are never wrapped: it stays what it is.
                for method in () if is_error(symbol) else methods(node):
                    for annotation in annotations_of(method):
                        yield from names_in(annotation, symbol.module)
            case ast.FunctionDef() | ast.AsyncFunctionDef() as node:
                for annotation in annotations_of(Method(node)):
                    yield from names_in(annotation, symbol.module)
            case ast.Assign(value=value) if not is_type_variable(symbol):
                yield from names_in(value, symbol.module)

    def _reach(self) -> list[Symbol]:
        found: dict[Symbol, None] = {}
        waiting = [symbol for symbol in self.public.values() if symbol.ours]
        while waiting:
            symbol = waiting.pop()
            if symbol not in found and isinstance(node_of(symbol), (ast.ClassDef, ast.Assign)):
                found[symbol] = None
            elif symbol in found or not isinstance(node_of(symbol), (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            waiting += [other for other in self.mentioned(symbol) if other.ours and other not in found]
        return list(found)

    def _need_twins(self) -> set[Symbol]:
        left = [symbol for symbol in self._reached if symbol.name not in COPIED]
        found = {symbol for symbol in left if is_active(symbol) or self._is_awaited(symbol)}
        while more := {s for s in left if s not in found and any(other in found for other in self.mentioned(s))}:
            found |= more
            # Whoever hands out an exception of a general class may hand out one that holds a twin.
            found |= {
                s for s in left if is_error(s) and any(is_error(e) and issubclass(e.value, s.value) for e in found)
            }
        return found

    def _is_awaited(self, symbol: Symbol) -> bool:
        """Whether a name stands for a callback that may be a coroutine function, which is none in the sync client."""
        return isinstance(node_of(symbol), ast.Assign) and any(
            other.name == "Awaitable" for other in self.mentioned(symbol)
        )

    def _kind(self, symbol: Symbol) -> Kind:
        if not self.twinned(symbol):
            return Kind.ITSELF
        node = node_of(symbol)
        if not isinstance(node, ast.ClassDef):
            return Kind.ALIAS
        if is_error(symbol):
            return Kind.ERROR if self._says(symbol, node) else Kind.CARRIER
        is_data = "NamedTuple" in map(ast.unparse, node.bases) or "dataclass" in decorators(node)
        hidden = any(isinstance(i, ast.AnnAssign) and _private(ast.unparse(i.target)) for i in node.body)
        return Kind.DATA if is_data and not hidden and not is_active(symbol) else Kind.HANDLE

    def _says(self, symbol: Symbol, node: ast.ClassDef, asked: frozenset[Symbol] = frozenset()) -> bool:
        """Whether the declared attributes of an exception, or of one that it is derived from or holds, are twins."""
        asked |= {symbol}
        mentioned = {s for attribute in attributes(node) for s in names_in(attribute.annotation, symbol.module)}
        for other in (mentioned | set(bases(symbol))) - asked:
            definition = node_of(other)
            if self.twinned(other) and is_error(other) and isinstance(definition, ast.ClassDef):
                if self._says(other, definition, asked):
                    return True
            elif self.twinned(other):
                return True
        return False


def is_error(symbol: Symbol) -> bool:
    """Whether a name stands for an exception."""
    return isinstance(node_of(symbol), ast.ClassDef) and issubclass(symbol.value, BaseException)


def is_active(symbol: Symbol) -> bool:
    """Whether objects of a class do something asynchronous."""
    node = node_of(symbol)
    return isinstance(node, ast.ClassDef) and any(
        isinstance(method.node, ast.AsyncFunctionDef)
        or method.opens_block
        or {s.name for s in names_in(method.node.returns, symbol.module)}
        & {"AsyncIterator", "AsyncIterable", "AsyncGenerator", "AbstractAsyncContextManager"}
        for method in methods(node)
    )
