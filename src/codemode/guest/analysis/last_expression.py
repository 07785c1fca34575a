"""Finds the expression that is a program's last statement: its value is shown when the program returns nothing.

Loaded by path in locked workers: imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node, Tree

SKIPPED = ("comment", "empty_statement")
# A line that begins with one of these continues the line before it, unless that ends with a semicolon or a block.
CONTINUING = frozenset(b"([`/+-*%,.?:<>=&|^~!")
ENDED_BY_A_BLOCK = ("function_declaration", "generator_function_declaration", "class_declaration", "statement_block")


def last_expression(tree: Tree, data: bytes) -> tuple[int, int] | None:
    """The byte offsets between which it stands in ``data``.

    None where the last statement is another one, or where the engine might read its beginning as part of what stands
    before it.
    """
    cursor = tree.walk()
    if not cursor.goto_last_child():
        return None
    node = cursor.node
    while node is not None and node.type in SKIPPED and cursor.goto_previous_sibling():
        node = cursor.node
    if node is None or node.type != "expression_statement":
        return None
    expression = next((child for child in node.children if child.is_named and child.type != "comment"), None)
    if expression is None:
        return None
    start, end = expression.start_byte, expression.end_byte
    is_apart = data[start] not in CONTINUING or _is_apart(_statement_before(node), data)
    return (start, end) if is_apart and start < end else None


def _statement_before(node: Node) -> Node | None:
    before = node.prev_sibling
    while before is not None and before.type == "comment":
        before = before.prev_sibling
    return before


def _is_apart(before: Node | None, data: bytes) -> bool:
    return before is None or data[before.end_byte - 1] == ord(";") or before.type in ENDED_BY_A_BLOCK
