"""Translates the async client's types for gen_sync_client: what they are called, and how values are converted."""

from __future__ import annotations

import ast
from collections import defaultdict

from scripts.sync_source import (
    PACKAGE,
    Face,
    Kind,
    Symbol,
    Untranslatable,
    is_type_variable,
    names_in,
    node_of,
    resolve,
)

_BLOCKS = {"AbstractAsyncContextManager": ("contextlib", "AbstractContextManager")}
_ITERATORS = {
    "AsyncIterator": ("collections.abc", "Iterator"),
    "AsyncIterable": ("collections.abc", "Iterable"),
}
_AWAITABLES = {"Awaitable", "Coroutine"}
_SEQUENCES = {"Sequence", "Iterable", "Iterator", "Collection", "list"}


class Types:
    """Translates annotations; remembers what has to be imported for them.

    Attributes:
        imports: names to import by module.
        modules: modules to import.
        handed_out: plain data of which twins are made.
        taken: plain data whose twins are arguments.
        variables: type variables that are used.
    """

    def __init__(self, face: Face) -> None:
        self._face = face
        self.imports: dict[str, set[str]] = defaultdict(set)
        self.modules: set[str] = set()
        self.handed_out: set[Symbol] = set()
        self.taken: set[Symbol] = set()
        self.variables: dict[str, Symbol] = {}

    # What types are called.

    def sync(self, node: ast.expr, module: str) -> str:
        """Returns the text of a type in the sync client."""
        return self._text(node, module, twins=True)

    def aio(self, node: ast.expr, module: str) -> str:
        """Returns the text of a type in the async client."""
        return self._text(node, module, twins=False)

    def _text(self, node: ast.expr, module: str, *, twins: bool) -> str:
        match node:
            case ast.Constant(value=str(text)):
                return self._text(ast.parse(text, mode="eval").body, module, twins=twins)
            case ast.Constant():
                return ast.unparse(node)
            case ast.Name(id=name):
                return self._name(resolve(module, name), module, twins=twins)
            case ast.Attribute():
                root = next(part for part in ast.walk(node) if isinstance(part, ast.Name))
                symbol = resolve(module, root.id)
                if symbol.name or symbol.ours:
                    raise Untranslatable(module, f"the type {ast.unparse(node)} is neither a name nor a module's")
                self.modules.add(symbol.module)
                return ast.unparse(node)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return f"{self._text(left, module, twins=twins)} | {self._text(right, module, twins=twins)}"
            case ast.Subscript(value=ast.Name(id="Literal")):
                self.imports["typing"].add("Literal")
                return ast.unparse(node)
            case ast.Subscript(value=ast.Name(id=name), slice=inner):
                outer = self._name(resolve(module, name), module, twins=twins)
                if name == "Callable" and twins:
                    return f"{outer}[{self._callable(inner, module)}]"
                return f"{outer}[{self._text(inner, module, twins=twins)}]"
            case ast.Tuple(elts=items):
                return ", ".join(self._text(item, module, twins=twins) for item in items)
            case ast.List(elts=items):
                return "[" + ", ".join(self._text(item, module, twins=twins) for item in items) + "]"
        raise Untranslatable(module, f"no rule for the type {ast.unparse(node)}")

    def _callable(self, inner: ast.expr, module: str) -> str:
        match inner:
            case ast.Tuple(elts=[arguments, returned]):
                return f"{self.sync(arguments, module)}, {self.sync(not_awaited(returned), module)}"
        raise Untranslatable(module, f"no rule for Callable[{ast.unparse(inner)}]")

    def _name(self, symbol: Symbol, module: str, *, twins: bool) -> str:
        if symbol.module == "builtins":
            return symbol.name
        if is_type_variable(symbol):
            known = self.variables.setdefault(symbol.name, symbol)
            if ast.dump(_value_of(known)) != ast.dump(_value_of(symbol)):
                raise Untranslatable(symbol.module, f"the type variable {symbol.name} is another in {known.module}")
            return symbol.name
        if twins and symbol.name in _AWAITABLES:
            raise Untranslatable(module, f"{symbol.name} is awaited by the caller, who is no coroutine")
        if twins and (other := (_BLOCKS | _ITERATORS).get(symbol.name)) is not None:
            self.imports[other[0]].add(other[1])
            return other[1]
        if self._face.twinned(symbol) and self._face.kinds[symbol] is not Kind.CARRIER:
            return symbol.name if twins else self.original(symbol)
        self.use(symbol)
        return symbol.name

    def original(self, symbol: Symbol) -> str:
        """Returns the text for something of the async client of which there is a twin."""
        if symbol.name in self._face.names:
            return f"aio.{symbol.name}"
        self.imports[symbol.module].add(f"{symbol.name} as _{symbol.name}")
        return f"_{symbol.name}"

    def use(self, symbol: Symbol) -> None:
        """Notes that a name is used as it is."""
        public = symbol.ours and symbol.name in self._face.names
        self.imports[PACKAGE if public else symbol.module].add(symbol.name)

    # How values are converted. ``portal`` is the text for the portal in the place of the conversion.

    def out(self, node: ast.expr | None, module: str, value: str, portal: str = "self._portal") -> str:
        """Returns the text that makes of ``value`` what the caller gets; ``value`` itself if that is the same."""
        if node is None or not self._face.mentions_twin(node, module):
            return value
        match node:
            case ast.Constant(value=str(text)):
                return self.out(ast.parse(text, mode="eval").body, module, value, portal)
            case ast.Name() | ast.Subscript(value=ast.Name()) if (symbol := self._twinned(node, module)) is not None:
                return self._convert(symbol, node, module, value, portal)
            case ast.BinOp(left=some, op=ast.BitOr(), right=ast.Constant(value=None)):
                return f"None if {value} is None else {self.out(some, module, value, portal)}"
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[item, ast.Constant(value=el)])) if (
                el is ...
            ):
                return f"tuple({self.out(item, module, 'item', portal)} for item in {value})"
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
                parts = [self.out(item, module, f"{value}[{n}]", portal) for n, item in enumerate(items)]
                return f"({', '.join(parts)})"
            case ast.Subscript(value=ast.Name(id="Iterator"), slice=item):
                return f"({self.out(item, module, 'item', portal)} for item in {value})"
            case ast.Subscript(value=ast.Name(id=outer), slice=item) if outer in _SEQUENCES:
                return f"[{self.out(item, module, 'item', portal)} for item in {value}]"
            case ast.Subscript(value=ast.Name(id="Mapping" | "dict"), slice=ast.Tuple(elts=[_, item])):
                return f"{{name: {self.out(item, module, 'item', portal)} for name, item in {value}.items()}}"
        raise Untranslatable(module, f"no rule for handing out {ast.unparse(node)}")

    def _convert(self, symbol: Symbol, node: ast.expr, module: str, value: str, portal: str) -> str:
        kind = self._face.kinds[symbol]
        if kind is Kind.HANDLE:
            return f"{symbol.name}({portal}, {value})"
        if kind is Kind.DATA:
            self.handed_out.add(symbol)
            return f"{twin_function(symbol)}({portal}, {value})"
        if kind in (Kind.ERROR, Kind.CARRIER):
            self.imports[f"{PACKAGE}.sync._twin"].add("with_twins")
            if kind is Kind.CARRIER:
                return f"with_twins({portal}, {value})"
            self.imports["typing"].add("cast")
            return f'cast("{self.sync(node, module)}", with_twins({portal}, {value}))'
        alias = node_of(symbol)
        if isinstance(alias, ast.Assign) and isinstance(node, ast.Name):
            return self.out(alias.value, symbol.module, value, portal)
        raise Untranslatable(module, f"no rule for handing out {ast.unparse(node)}")

    def into(self, node: ast.expr | None, module: str, value: str) -> str:
        """Returns the text that makes of an argument what the async client takes; ``value`` if that is the same."""
        if node is None or not self._face.mentions_twin(node, module):
            return value
        self._take(node, module)
        match node:
            case ast.Name(id=name) if isinstance(alias := node_of(symbol := resolve(module, name)), ast.Assign):
                return self.into(alias.value, symbol.module, value)
            case ast.BinOp(left=some, op=ast.BitOr(), right=ast.Constant(value=None)):
                made = self.into(some, module, value)
                return made if made in (f"plain({value})", f"each({value})") else f"None if {value} is None else {made}"
            case ast.Subscript(value=ast.Name(id=outer)) if outer in _SEQUENCES:
                return f"each({value})"
        return f"plain({value})"

    def _take(self, node: ast.expr, module: str) -> None:
        for symbol in names_in(node, module):
            definition = node_of(symbol)
            if self._face.twinned(symbol) and isinstance(definition, ast.Assign):
                self._take(definition.value, symbol.module)
            elif self._face.twinned(symbol) and self._face.kinds[symbol] is Kind.DATA:
                self.taken.add(symbol)

    def callback(self, node: ast.expr | None, module: str) -> tuple[ast.expr, str, str] | None:
        """Returns a callback's ``Callable``, the module of its definition, and when the argument is one.

        The last is a test of it as text, with ``{}`` for the argument; empty if it always is. None if the type is
        no callback, nor one of two things of which one is.

        Raises:
            Untranslatable: the async client would not await what it returns, so it cannot run elsewhere.
        """
        when = ""
        match node:
            case ast.BinOp(left=some, op=ast.BitOr(), right=ast.Constant(value=None)):
                node, when = some, "{} is not None"
            case ast.BinOp(left=some, op=ast.BitOr()) if self._is_callable(some, module):
                node, when = some, "callable({})"
        name = node.value if isinstance(node, ast.Subscript) else node
        if not isinstance(name, ast.Name):
            return None
        symbol = resolve(module, name.id)
        definition = node_of(symbol)
        if isinstance(definition, ast.Assign) and not is_type_variable(symbol):
            found = self.callback(definition.value, symbol.module)
            return None if found is None else (found[0], found[1], when)
        if symbol != Symbol("collections.abc", "Callable"):
            return None
        match node:
            case ast.Subscript(slice=ast.Tuple(elts=[ast.List(), returned])) if not_awaited(returned) is not returned:
                return node, module, when
        raise Untranslatable(module, f"the callback {ast.unparse(node or name)} is not awaited by whoever calls it")

    def _is_callable(self, node: ast.expr, module: str) -> bool:
        name = node.value if isinstance(node, ast.Subscript) else node
        if not isinstance(name, ast.Name):
            return False
        symbol = resolve(module, name.id)
        definition = node_of(symbol)
        if isinstance(definition, ast.Assign) and not is_type_variable(symbol):
            return self._is_callable(definition.value, symbol.module)
        return symbol == Symbol("collections.abc", "Callable")

    def _twinned(self, node: ast.expr, module: str) -> Symbol | None:
        name = node.value if isinstance(node, ast.Subscript) else node
        assert isinstance(name, ast.Name)
        symbol = resolve(module, name.id)
        return symbol if self._face.twinned(symbol) else None


def not_awaited(node: ast.expr) -> ast.expr:
    """Returns what a plain function in the place of a callback returns: ``T`` for ``T | Awaitable[T]``, say."""
    match node:
        case ast.Subscript(value=ast.Name(id="Awaitable"), slice=result):
            return result
        case ast.BinOp(left=left, op=ast.BitOr(), right=right) if (result := not_awaited(right)) is not right:
            return left if ast.dump(left) == ast.dump(result) else node
    return node


def twin_function(symbol: Symbol) -> str:
    """Returns the name of the function that makes a twin of plain data."""
    return f"_twin_of_{_snake(symbol.name)}"


def plain_function(symbol: Symbol) -> str:
    """Returns the name of the function that makes the async client's data of a twin."""
    return f"_plain_{_snake(symbol.name)}"


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _value_of(symbol: Symbol) -> ast.expr:
    definition = node_of(symbol)
    assert isinstance(definition, ast.Assign)
    return definition.value
