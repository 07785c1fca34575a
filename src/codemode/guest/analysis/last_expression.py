"""Find the expression that is a program's last statement.

Its value is shown when the program returns nothing. Loaded by path in locked workers: imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node, Tree

SKIPPED = ("comment", "empty_statement")
MAX_SKIPPED = 64  # a step back takes the grammar as long as there are statements
# A line that begins with one of these continues the line before it, unless that ends with a semicolon or a block.
CONTINUING = frozenset(b"([`/+-*%,.?:<>=&|^~!")
ENDED_BY_A_BLOCK = ("function_declaration", "generator_function_declaration", "class_declaration", "statement_block")


def last_expression(tree: Tree, data: bytes) -> tuple[int, int] | None:
    """Return the byte offsets of the expression in ``data``.

    None where the last statement is none, or where the engine might read its beginning as part of the one before.
    """
    cursor = tree.walk()
    node = cursor.node if cursor.goto_last_child() else None
    for _ in range(MAX_SKIPPED):
        if node is None or node.type not in SKIPPED:
            break
        node = cursor.node if cursor.goto_previous_sibling() else None
    if node is None or node.type != "expression_statement":
        return None
    expression = next((child for child in node.children if child.is_named and child.type != "comment"), None)
    if expression is None:
        return None
    start, end = expression.start_byte, expression.end_byte
    is_apart = data[start] not in CONTINUING or _ends_before(node, data)
    return (start, end) if is_apart and start < end else None


def _ends_before(node: Node, data: bytes) -> bool:
    """Return True when nothing stands before a statement that its first character could continue."""
    before = node.prev_sibling
    for _ in range(MAX_SKIPPED):
        if before is None or before.type != "comment":
            break
        before = before.prev_sibling
    return before is None or data[before.end_byte - 1] == ord(";") or before.type in ENDED_BY_A_BLOCK
