"""Finds the expression that is a program's last statement.

Its value is shown when the program returns nothing. Loaded by path in locked workers: imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node, Tree

SKIPPED_NODES = ("comment", "empty_statement")
MAX_SKIPPED = 64  # a step back takes the grammar as long as there are statements
# A line that begins with one of these continues the line before it, unless that ends with a semicolon or a block.
CONTINUING_CHARACTERS = frozenset(b"([`/+-*%,.?:<>=&|^~!")
BLOCK_DECLARATIONS = ("function_declaration", "generator_function_declaration", "class_declaration", "statement_block")


def find_last_expression(tree: Tree, data: bytes) -> tuple[int, int] | None:
    """Return the byte offsets of the expression in ``data``.

    None if the last statement is no expression, or if the engine might join its beginning to the statement before.
    """
    cursor = tree.walk()
    node = cursor.node if cursor.goto_last_child() else None
    for _ in range(MAX_SKIPPED):
        if node is None or node.type not in SKIPPED_NODES:
            break
        node = cursor.node if cursor.goto_previous_sibling() else None
    if node is None or node.type != "expression_statement":
        return None
    expression = next((child for child in node.children if child.is_named and child.type != "comment"), None)
    if expression is None:
        return None
    start, end = expression.start_byte, expression.end_byte
    is_separate = data[start] not in CONTINUING_CHARACTERS or _is_separate_from_previous(node, data)
    return (start, end) if is_separate and start < end else None


def _is_separate_from_previous(node: Node, data: bytes) -> bool:
    """Return True when nothing stands before a statement that its first character could continue."""
    previous = node.prev_sibling
    for _ in range(MAX_SKIPPED):
        if previous is None or previous.type != "comment":
            break
        previous = previous.prev_sibling
    return previous is None or data[previous.end_byte - 1] == ord(";") or previous.type in BLOCK_DECLARATIONS
