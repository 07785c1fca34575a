"""Finds functions and promises that a program's end leaves uncalled or not awaited.

Loaded by path in locked workers.
"""

from __future__ import annotations

import re

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node, Tree

FUNCTION_EXPRESSIONS = ("arrow_function", "function_expression")
DECLARATIONS = ("function_declaration", "class_declaration", "lexical_declaration", "variable_declaration")
TYPE_STATEMENTS = ("interface_declaration", "type_alias_declaration", "ambient_declaration", "import_statement")
SKIPPED_NODES = ("comment", "empty_statement", *TYPE_STATEMENTS)
ENTRY_POINT_NAMES = (b"main", b"run", b"program", b"execute", b"handler", b"solve", b"solution", b"task")
CALL, AWAIT, REPORT = "call", "await", "report"
TOOLS_PATTERN = compile_lazily(rb"\{\s*tools\s*,?\s*\}")
BLANKED_EXPORT = b" " * len("export ")
MAX_STATEMENTS = 2_000


class ProgramEnding:
    """What becomes of a program's end where it returns nothing itself.

    There is a ``note`` where that is more than to take the value of what the program itself calls or exports.
    The value that counts is that of an expression: the one between the byte offsets ``value_span``, the variable
    ``variable``, or what follows ``export default``, whose byte offsets are ``export_span``. ``action``: it is called
    if it is a function ("call"), only awaited ("await"), or reported as a function that is not called ("report").
    Between the byte offsets ``blank_span`` is an operator that drops the value.
    """

    __slots__ = ("action", "blank_span", "export_span", "note", "value_span", "variable")

    def __init__(
        self,
        action: str,
        note: str = "",
        *,
        value_span: tuple[int, int] | None = None,
        variable: str = "",
        export_span: tuple[int, int] | None = None,
        blank_span: tuple[int, int] | None = None,
    ) -> None:
        self.action, self.note, self.value_span, self.variable, self.export_span = (
            action,
            note,
            value_span,
            variable,
            export_span,
        )
        self.blank_span = blank_span


def find_module_ending(tree: Tree, data: bytes) -> ProgramEnding | None:
    """Return the ending of a module: what it exports by default counts first, then what it exports as ``result``."""
    exports = [node for node in tree.root_node.children if node.type == "export_statement"]
    endings = [_find_ending_of_export(node) for node in exports]
    for kind in (CALL, AWAIT):
        first_of_kind = next((ending for ending in endings if ending is not None and ending.action == kind), None)
        if first_of_kind is not None:
            return first_of_kind
    statements = [node.child_by_field_name("declaration") or node for node in _list_executable_statements(tree)]
    return _find_ending_of_statements([node for node in statements if node.type != "export_statement"], data)


def _find_ending_of_export(node: Node) -> ProgramEnding | None:
    if node.child_by_field_name("source") is not None:
        return None
    declaration, value = node.child_by_field_name("declaration"), node.child_by_field_name("value")
    if any(child.type == "default" for child in node.children):
        name = None if declaration is None else declaration.child_by_field_name("name")
        if declaration is not None and declaration.type in TYPE_STATEMENTS:
            return None
        if name is not None:
            return ProgramEnding(CALL, variable=_get_node_text(name))
        exported_node = value or declaration
        return (
            None
            if exported_node is None
            else ProgramEnding(CALL, export_span=(node.start_byte, exported_node.start_byte))
        )
    if declaration is not None:
        names = [
            declaration.child_by_field_name("name"),
            *(declarator.child_by_field_name("name") for declarator in declaration.children),
        ]
        is_result = any(name is not None and name.text == b"result" for name in names)
        return ProgramEnding(AWAIT, variable="result") if is_result else None
    for clause in node.children:
        for specifier in clause.children if clause.type == "export_clause" else ():
            name, alias = specifier.child_by_field_name("name"), specifier.child_by_field_name("alias")
            exported = alias or name
            if name is None or exported is None or name.type != "identifier":
                continue
            if exported.text == b"default":
                return ProgramEnding(CALL, variable=_get_node_text(name))
            if exported.text == b"result":
                return ProgramEnding(AWAIT, variable=_get_node_text(name))
    return None


def find_function_body_ending(tree: Tree, data: bytes) -> ProgramEnding | None:
    """Return what a program leaves to be done at its end, as far as there is no doubt what was meant."""
    return _find_ending_of_statements(_list_executable_statements(tree), data) if _may_define_functions(data) else None


def find_saved_program_ending(
    tree: Tree, data: bytes, names: dict[str, list[int]]
) -> tuple[ProgramEnding | None, list[tuple[int, str]]]:
    """Return the ending of a saved program, whose function takes the input, and problems with their byte offsets.

    ``names`` are the byte offsets of each name. A function that is declared is the program if no other statement uses
    it and if nothing runs after it: the exported one, the last statement, the only one, or the one named as an entry
    point. It is a problem if a program only declares functions and none of these rules selects one.
    """
    statements = _list_executable_statements(tree) if _may_define_functions(data) else []
    if not statements or any(statement.type == "return_statement" for statement in statements):
        return None, []
    ending = _find_ending_of_statements(statements, data, takes_input=True)
    if ending is not None and ending.value_span is not None:
        ending.value_span = statements[-1].start_byte, ending.value_span[1]  # `0, f` too is one expression
    if statements[-1].type not in DECLARATIONS or (ending is not None and ending.action == AWAIT):
        return ending, []
    start = len(statements)
    while start and _only_declares(statements[start - 1]):
        start -= 1
    functions = [
        (name.decode(), statement) for statement in statements[start:] for name, _ in _find_functions([statement])
    ]
    unused = [
        (name, statement)
        for name, statement in functions
        if name in names and all(statement.start_byte <= at < statement.end_byte for at in names[name])
    ]
    for candidates in (
        [name for name, statement in unused if data[: statement.start_byte].endswith(BLANKED_EXPORT)],
        [name for name, statement in unused if statement.start_byte == statements[-1].start_byte][-1:],
        [name for name, _ in unused],
        [name for name, _ in unused if name.encode() in ENTRY_POINT_NAMES],
    ):
        if len(candidates) == 1:
            return ProgramEnding(CALL, variable=candidates[0]), []
    if start or not functions:
        return None, []
    listed_names = ", ".join(name for name, _ in unused or functions)
    message = (
        f"the program returns nothing, and it is unclear which of its functions it is ({listed_names}): end it with"
        f" `return await {(unused or functions)[-1][0]}(input);`, for instance"
    )
    return None, [(statements[-1].start_byte, message)]


def _only_declares(statement: Node) -> bool:
    """Return whether a statement declares functions, classes or variables and awaits nothing outside functions."""
    if statement.type in ("function_declaration", "class_declaration") or _find_functions([statement]):
        return True
    return statement.type in DECLARATIONS and b"await" not in (statement.text or b"")


def _may_define_functions(data: bytes) -> bool:
    """Return whether a program may define functions. Without any, nothing remains to be called or awaited."""
    return b"=>" in data or b"function" in data


def _find_ending_of_statements(
    statements: list[Node], data: bytes, *, takes_input: bool = False
) -> ProgramEnding | None:
    if not statements:
        return None
    functions = dict(_find_functions(statements))
    last = statements[-1]
    first_child = next((child for child in last.children if child.is_named and child.type != "comment"), None)
    if last.type == "expression_statement":
        if first_child is None:
            return None
        return _find_ending_of_expression(first_child, statements, functions, data, takes_input=takes_input)
    if last.type == "return_statement":
        return None if first_child is None else _find_ending_of_return(first_child, functions, data)
    if last.type in ("lexical_declaration", "variable_declaration") and first_child is not None:
        return _find_ending_of_variable(last, first_child, functions) or _find_ending_of_declarations(statements, data)
    return _find_ending_of_declarations(statements, data)


def find_last_statement_offset(tree: Tree) -> int:
    """Return the byte offset of a program's last statement; -1 where it has none."""
    statements = _list_executable_statements(tree)
    return statements[-1].start_byte if statements else -1


def _list_executable_statements(tree: Tree) -> list[Node]:
    """The statements of a program, without types, comments and directives."""
    root = tree.root_node
    if root.child_count > MAX_STATEMENTS:
        return []
    statements = [node for node in root.children if node.type not in SKIPPED_NODES]
    while statements and statements[0].type == "expression_statement" and statements[0].child(0).type == "string":  # type: ignore[union-attr]
        statements.pop(0)
    return statements


def _find_ending_of_return(expression: Node, functions: dict[bytes, Node], data: bytes) -> ProgramEnding | None:
    """A program that returns a function, which is no value: its own, or the one that is written there."""
    function = _unwrap_parentheses(expression)
    target = functions.get(function.text or b"") if function.type == "identifier" else function
    if (
        target is None
        or target.type not in (*FUNCTION_EXPRESSIONS, "function_declaration")
        or not _is_callable_with_tools_or_nothing(target, data)
    ):
        return None
    return ProgramEnding(
        CALL,
        "the program returns a function, which is called where that is no value",
        value_span=(expression.start_byte, expression.end_byte),
    )


def _find_ending_of_variable(statement: Node, declarator: Node, functions: dict[bytes, Node]) -> ProgramEnding | None:
    """A program that ends with `const result = await main();`."""
    name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
    if name is None or value is None or name.type != "identifier" or statement.named_child_count != 1:
        return None
    callee = _find_innermost_callee(value)
    if callee is None or not (callee.type in FUNCTION_EXPRESSIONS or callee.text in functions):
        return None
    return ProgramEnding(
        AWAIT, f"took the value of {_get_node_text(name)}, with which the program ends", variable=_get_node_text(name)
    )


def _find_ending_of_expression(
    expression: Node, statements: list[Node], functions: dict[bytes, Node], data: bytes, *, takes_input: bool
) -> ProgramEnding | None:
    if expression.type == "sequence_expression":
        expression = [child for child in expression.children if child.is_named and child.type != "comment"][-1]
    blank_span = None
    if expression.type == "unary_expression" and data[expression.start_byte : expression.start_byte + 4].startswith(
        (b"!", b"void")
    ):
        operand = expression.child_by_field_name("argument")
        if operand is None or _find_innermost_callee(operand) is None:
            return None
        blank_span, expression = (expression.start_byte, operand.start_byte), operand
    function = _unwrap_parentheses(expression)
    value_span = (expression.start_byte, expression.end_byte)
    if not _is_last_statement_separate(statements, data):
        return None
    if function.type in FUNCTION_EXPRESSIONS:
        if not (takes_input or _is_callable_with_tools_or_nothing(function, data)):
            return None
        return ProgramEnding(CALL, "called the function that the program is", value_span=value_span)
    if function.type == "identifier" and function.text in functions:
        if not takes_input and _needs_several_arguments(functions[function.text]):
            return ProgramEnding(REPORT, variable=_get_node_text(function))
        return ProgramEnding(
            CALL, f"called {_get_node_text(function)}(), which nothing had called", value_span=value_span
        )
    callee = _find_innermost_callee(function)
    if callee is None:
        return None
    is_own = callee.type in FUNCTION_EXPRESSIONS or (callee.type == "identifier" and callee.text in functions)
    return ProgramEnding(AWAIT, value_span=value_span, blank_span=blank_span) if is_own else None


def _find_ending_of_declarations(statements: list[Node], data: bytes) -> ProgramEnding | None:
    """A program that only declares: its one function that nothing calls, or the one that is an entry point."""
    if any(node.type not in DECLARATIONS for node in statements):
        return None
    functions = dict(_find_functions(statements))
    uncalled = [name for name in functions if _is_unused_except_in_export(name, data)]
    entry_points = [name for name in uncalled if name in ENTRY_POINT_NAMES]
    candidates = entry_points if len(entry_points) == 1 else uncalled
    callable_names = [name for name in candidates if _is_callable_with_tools_or_nothing(functions[name], data)]
    if len(callable_names) == 1:
        name = callable_names[0].decode()
        return ProgramEnding(CALL, f"called {name}(), which nothing had called", variable=name)
    if candidates and all(map(_only_declares, statements)):
        return ProgramEnding(REPORT, variable=candidates[-1].decode())
    return None


def _find_functions(statements: list[Node]) -> list[tuple[bytes, Node]]:
    functions: list[tuple[bytes, Node]] = []
    for statement in statements:
        if statement.type == "function_declaration":
            name = statement.child_by_field_name("name")
            if name is not None and name.text is not None:
                functions.append((name.text, statement))
        elif statement.type in ("lexical_declaration", "variable_declaration"):
            for declarator in statement.children:
                name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
                if (
                    name is not None
                    and value is not None
                    and name.text is not None
                    and name.type == "identifier"
                    and _unwrap_parentheses(value).type in FUNCTION_EXPRESSIONS
                ):
                    functions.append((name.text, _unwrap_parentheses(value)))
    return functions


def _find_innermost_callee(node: Node) -> Node | None:
    """The function of ``f()``, ``await f()``, ``f().then(...)`` or ``(function () {})()``; None for anything else."""
    node = _unwrap_parentheses(node)
    if node.type == "await_expression":
        inner = next((child for child in node.children if child.is_named and child.type != "comment"), None)
        return None if inner is None else _find_innermost_callee(inner)
    while node.type == "call_expression":
        function = node.child_by_field_name("function")
        if function is None:
            return None
        function = _unwrap_parentheses(function)
        if function.type == "member_expression":
            target, name = function.child_by_field_name("object"), function.child_by_field_name("property")
            if target is None or name is None or name.text not in (b"then", b"catch", b"finally"):
                return None
            node = _unwrap_parentheses(target)
            continue
        return function
    return None


def _unwrap_parentheses(node: Node) -> Node:
    while node.type == "parenthesized_expression":
        inner = next((child for child in node.children if child.is_named and child.type != "comment"), None)
        if inner is None:
            break
        node = inner
    return node


def _is_callable_with_tools_or_nothing(function: Node, data: bytes) -> bool:
    """Return whether a function can be called without arguments, or with `tools` alone: it does not use any other."""
    single_parameter = function.child_by_field_name("parameter")
    if single_parameter is not None:
        return single_parameter.text == b"tools" or _occurs_once(single_parameter.text or b"", data)
    parameter_nodes = _list_parameters(function)
    if len(parameter_nodes) == 1:
        name = _get_parameter_name(parameter_nodes[0]) or b""
        if name == b"tools" or TOOLS_PATTERN.fullmatch(name):
            return True
    return not _needs_several_arguments(function) and all(
        child.child_by_field_name("value") is not None
        or child.type == "optional_parameter"
        or (_is_plain_parameter(child) and _occurs_once(_get_parameter_name(child) or b"", data))
        for child in parameter_nodes
    )


def _needs_several_arguments(function: Node) -> bool:
    """Return whether more than one parameter has no default value: the guest runtime never calls such a function."""
    return sum(child.child_by_field_name("value") is None for child in _list_parameters(function)) > 1


def _list_parameters(function: Node) -> list[Node]:
    """Return the parameters in parentheses."""
    parameters = function.child_by_field_name("parameters")
    children = [] if parameters is None else parameters.children
    return [child for child in children if child.is_named and child.type != "comment"]


def _is_plain_parameter(parameter: Node) -> bool:
    return (parameter.child_by_field_name("pattern") or parameter).type == "identifier"


def _get_parameter_name(parameter: Node) -> bytes | None:
    pattern = parameter.child_by_field_name("pattern")
    return parameter.text if pattern is None else pattern.text


def _is_last_statement_separate(statements: list[Node], data: bytes) -> bool:
    """Return whether the engine too begins the last statement there, after any preceding text."""
    start = statements[-1].start_byte
    if len(statements) == 1 or data[start] not in b"([`/+-*%,.?:<>=&|^~!":
        return True
    before = statements[-2]
    return data[before.end_byte - 1] in b";" or before.type in ("function_declaration", "class_declaration")


def _is_unused_except_in_export(name: bytes, data: bytes) -> bool:
    """Return whether a name occurs once, but for a list of exports."""
    exported = re.search(rb"\bexport\s*\{\s*" + re.escape(name) + rb"\s*\}", data)
    return _occurs_once(name, data if exported is None else data[: exported.start()] + data[exported.end() :])


def _occurs_once(name: bytes, data: bytes) -> bool:
    return len(re.findall(rb"(?<![\w$])" + re.escape(name) + rb"(?![\w$])", data)) == 1


def _get_node_text(node: Node) -> str:
    return (node.text or b"").decode()
