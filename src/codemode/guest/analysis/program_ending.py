"""Find what a program leaves to be called or awaited: it is or returns a function, or calls one and returns nothing.

Loaded by path in locked workers.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node, Tree

FUNCTIONS = ("arrow_function", "function_expression")
DECLARATIONS = ("function_declaration", "class_declaration", "lexical_declaration", "variable_declaration")
TYPES = ("interface_declaration", "type_alias_declaration", "ambient_declaration", "import_statement")
SKIPPED = ("comment", "empty_statement", *TYPES)
USUAL_NAMES = (b"main", b"run", b"program", b"execute", b"handler", b"solve", b"solution", b"task")
CALL, AWAIT = "call", "await"
MAX_STATEMENTS = 2_000


class Ending:
    """What becomes of a program's end where it returns nothing itself.

    There is a ``note`` where that is more than to take the value of what the program itself calls or exports.
    The value that counts is that of an expression: the one between the byte offsets ``last``, the variable ``name``, or
    what stands behind ``export default``, whose byte offsets are ``export``. ``ends``: it is called if it is a function
    ("call"), or only awaited ("await"). Between the byte offsets ``blank`` is an operator that drops the value.
    """

    __slots__ = ("blank", "ends", "export", "last", "name", "note")

    def __init__(
        self,
        ends: str,
        note: str = "",
        *,
        last: tuple[int, int] | None = None,
        name: str = "",
        export: tuple[int, int] | None = None,
        blank: tuple[int, int] | None = None,
    ) -> None:
        self.ends, self.note, self.last, self.name, self.export = ends, note, last, name, export
        self.blank = blank


def ending_of_module(tree: Tree, data: bytes) -> Ending | None:
    """Return the same of a module: what it exports by default counts first, then what it exports as ``result``."""
    exports = [node for node in tree.root_node.children if node.type == "export_statement"]
    found = [_of_export(node) for node in exports]
    for kind in (CALL, AWAIT):
        chosen = next((one for one in found if one is not None and one.ends == kind), None)
        if chosen is not None:
            return chosen
    statements = [node.child_by_field_name("declaration") or node for node in _statements(tree)]
    return _ending([node for node in statements if node.type != "export_statement"], data)


def _of_export(node: Node) -> Ending | None:
    if node.child_by_field_name("source") is not None:
        return None
    declaration, value = node.child_by_field_name("declaration"), node.child_by_field_name("value")
    if any(child.type == "default" for child in node.children):
        name = None if declaration is None else declaration.child_by_field_name("name")
        if declaration is not None and declaration.type in TYPES:
            return None
        if name is not None:
            return Ending(CALL, name=_shown(name))
        inner = value or declaration
        return None if inner is None else Ending(CALL, export=(node.start_byte, inner.start_byte))
    if declaration is not None:
        names = [
            declaration.child_by_field_name("name"),
            *(one.child_by_field_name("name") for one in declaration.children),
        ]
        is_result = any(name is not None and name.text == b"result" for name in names)
        return Ending(AWAIT, name="result") if is_result else None
    for clause in node.children:
        for specifier in clause.children if clause.type == "export_clause" else ():
            name, alias = specifier.child_by_field_name("name"), specifier.child_by_field_name("alias")
            exported = alias or name
            if name is None or exported is None or name.type != "identifier":
                continue
            if exported.text == b"default":
                return Ending(CALL, name=_shown(name))
            if exported.text == b"result":
                return Ending(AWAIT, name=_shown(name))
    return None


def ending(tree: Tree, data: bytes) -> Ending | None:
    """Return what a program leaves to be done at its end, as far as there is no doubt what was meant."""
    return _ending(_statements(tree), data) if _may_have_functions(data) else None


def _may_have_functions(data: bytes) -> bool:
    """Whether a program may have a function of its own, without which nothing is left to be called or awaited."""
    return b"=>" in data or b"function" in data


def _ending(statements: list[Node], data: bytes) -> Ending | None:
    if not statements:
        return None
    functions = dict(_functions(statements))
    last = statements[-1]
    inner = next((child for child in last.children if child.is_named and child.type != "comment"), None)
    if last.type == "expression_statement":
        return None if inner is None else _of_expression(inner, statements, functions, data)
    if last.type == "return_statement":
        return None if inner is None else _of_returned(inner, functions, data)
    if last.type in ("lexical_declaration", "variable_declaration") and inner is not None:
        return _of_variable(last, inner, functions) or _of_declarations(statements, data)
    return _of_declarations(statements, data)


def last_statement_at(tree: Tree) -> int:
    """Return the byte offset of a program's last statement; -1 where it has none."""
    statements = _statements(tree)
    return statements[-1].start_byte if statements else -1


def _statements(tree: Tree) -> list[Node]:
    """The statements of a program, without types, comments and directives."""
    root = tree.root_node
    if root.child_count > MAX_STATEMENTS:
        return []
    found = [node for node in root.children if node.type not in SKIPPED]
    while found and found[0].type == "expression_statement" and found[0].child(0).type == "string":  # type: ignore[union-attr]
        found.pop(0)
    return found


def _of_returned(expression: Node, functions: dict[bytes, Node], data: bytes) -> Ending | None:
    """A program that returns a function, which is no value: its own, or the one that is written there."""
    function = _bare(expression)
    target = functions.get(function.text or b"") if function.type == "identifier" else function
    if target is None or target.type not in (*FUNCTIONS, "function_declaration") or not _needs_nothing(target, data):
        return None
    return Ending(
        CALL,
        "the program returns a function, which is called where that is no value",
        last=(expression.start_byte, expression.end_byte),
    )


def _of_variable(statement: Node, declared: Node, functions: dict[bytes, Node]) -> Ending | None:
    """A program that ends with `const result = await main();`."""
    name, value = declared.child_by_field_name("name"), declared.child_by_field_name("value")
    if name is None or value is None or name.type != "identifier" or statement.named_child_count != 1:
        return None
    callee = _innermost_callee(value)
    if callee is None or not (callee.type in FUNCTIONS or callee.text in functions):
        return None
    return Ending(AWAIT, f"took the value of {_shown(name)}, with which the program ends", name=_shown(name))


def _of_expression(
    expression: Node, statements: list[Node], functions: dict[bytes, Node], data: bytes
) -> Ending | None:
    if expression.type == "sequence_expression":
        expression = [child for child in expression.children if child.is_named and child.type != "comment"][-1]
    blank = None
    if expression.type == "unary_expression" and data[expression.start_byte : expression.start_byte + 4].startswith(
        (b"!", b"void")
    ):
        operand = expression.child_by_field_name("argument")
        if operand is None or _innermost_callee(operand) is None:
            return None
        blank, expression = (expression.start_byte, operand.start_byte), operand
    function = _bare(expression)
    place = (expression.start_byte, expression.end_byte)
    if not _begins_a_statement(statements, data):
        return None
    if function.type in FUNCTIONS:
        if not _needs_nothing(function, data):
            return None
        return Ending(CALL, "called the function that the program is", last=place)
    if function.type == "identifier" and function.text in functions:
        return Ending(CALL, f"called {_shown(function)}(), which nothing had called", last=place)
    callee = _innermost_callee(function)
    if callee is None:
        return None
    is_own = callee.type in FUNCTIONS or (callee.type == "identifier" and callee.text in functions)
    return Ending(AWAIT, last=place, blank=blank) if is_own else None


def _of_declarations(statements: list[Node], data: bytes) -> Ending | None:
    """A program that only declares: its one function that nothing calls."""
    if any(node.type not in DECLARATIONS for node in statements):
        return None
    functions = dict(_functions(statements))
    uncalled = [name for name, node in functions.items() if _is_uncalled(name, data) and _needs_nothing(node, data)]
    usual = [name for name in uncalled if name in USUAL_NAMES]
    chosen = uncalled if len(uncalled) == 1 else usual
    if len(chosen) != 1:
        return None
    name = chosen[0].decode()
    return Ending(CALL, f"called {name}(), which nothing had called", name=name)


def _functions(statements: list[Node]) -> list[tuple[bytes, Node]]:
    found: list[tuple[bytes, Node]] = []
    for statement in statements:
        if statement.type == "function_declaration":
            name = statement.child_by_field_name("name")
            if name is not None and name.text is not None:
                found.append((name.text, statement))
        elif statement.type in ("lexical_declaration", "variable_declaration"):
            for declared in statement.children:
                name, value = declared.child_by_field_name("name"), declared.child_by_field_name("value")
                if name is not None and value is not None and name.text is not None and _bare(value).type in FUNCTIONS:
                    found.append((name.text, _bare(value)))
    return found


def _innermost_callee(node: Node) -> Node | None:
    """The function of ``f()``, ``await f()``, ``f().then(...)`` or ``(function () {})()``; None for anything else."""
    node = _bare(node)
    if node.type == "await_expression":
        inner = next((child for child in node.children if child.is_named and child.type != "comment"), None)
        return None if inner is None else _innermost_callee(inner)
    while node.type == "call_expression":
        function = node.child_by_field_name("function")
        if function is None:
            return None
        function = _bare(function)
        if function.type == "member_expression":
            target, name = function.child_by_field_name("object"), function.child_by_field_name("property")
            if target is None or name is None or name.text not in (b"then", b"catch", b"finally"):
                return None
            node = _bare(target)
            continue
        return function
    return None


def _bare(node: Node) -> Node:
    while node.type == "parenthesized_expression":
        inner = next((child for child in node.children if child.is_named and child.type != "comment"), None)
        if inner is None:
            break
        node = inner
    return node


def _needs_nothing(function: Node, data: bytes) -> bool:
    """Whether a function can be called without arguments, or with `tools` alone: it does not use any other."""
    single = function.child_by_field_name("parameter")
    parameters = function.child_by_field_name("parameters")
    if single is not None:
        return single.text == b"tools" or _occurs_once(single.text or b"", data)
    given = [] if parameters is None else [child for child in parameters.children if child.is_named]
    given = [child for child in given if child.type != "comment"]
    if len(given) == 1 and _parameter_name(given[0]) == b"tools":
        return True
    return all(
        child.child_by_field_name("value") is not None
        or child.type == "optional_parameter"
        or (_is_name(child) and _occurs_once(_parameter_name(child) or b"", data))
        for child in given
    )


def _is_name(parameter: Node) -> bool:
    return (parameter.child_by_field_name("pattern") or parameter).type == "identifier"


def _parameter_name(parameter: Node) -> bytes | None:
    pattern = parameter.child_by_field_name("pattern")
    return parameter.text if pattern is None else pattern.text


def _begins_a_statement(statements: list[Node], data: bytes) -> bool:
    """Whether the engine too sees the last statement begin there, whatever stands before it."""
    start = statements[-1].start_byte
    if len(statements) == 1 or data[start] not in b"([`/+-*%,.?:<>=&|^~!":
        return True
    before = statements[-2]
    return data[before.end_byte - 1] in b";" or before.type in ("function_declaration", "class_declaration")


def _is_uncalled(name: bytes, data: bytes) -> bool:
    """Whether a name occurs once, but for a list of exports."""
    exported = re.search(rb"\bexport\s*\{\s*" + re.escape(name) + rb"\s*\}", data)
    return _occurs_once(name, data if exported is None else data[: exported.start()] + data[exported.end() :])


def _occurs_once(name: bytes, data: bytes) -> bool:
    return len(re.findall(rb"(?<![\w$])" + re.escape(name) + rb"(?![\w$])", data)) == 1


def _shown(node: Node) -> str:
    return (node.text or b"").decode()
