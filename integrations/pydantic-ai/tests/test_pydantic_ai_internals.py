"""What is private to pydantic-ai is named in one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import codemode_pydantic_ai
from codemode_pydantic_ai.framework_internals import mark_as_questions
from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import ToolCallPart
from suite import each_row

FILES = sorted(Path(codemode_pydantic_ai.__file__).parent.glob("*.py"))
OWN_VARS = {"_run"}  # a copy of a capability gets one of its own


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def private_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from (part for part in (node.module or "").split(".") if is_private(part))
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("attr"):
            given = (one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str))
            yield from filter(is_private, given)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield from {str(node.slice.value)} - OWN_VARS if is_private(str(node.slice.value)) else ()


@each_row("path", FILES)
def test_private_names_of_others_are_in_one_file(path: Path) -> None:
    found = set(private_names(ast.parse(path.read_text(encoding="utf-8"))))
    assert found == ({"_kinds", "_resolve_single_deferred"} if path.stem == "framework_internals" else set())


def test_a_framework_that_keeps_questions_otherwise_has_none() -> None:
    requests = DeferredToolRequests(calls=[ToolCallPart("ask", tool_call_id="a")])
    mark_as_questions(requests, ["a"])
    assert not hasattr(requests, "kind") or requests.kind("a") == "question"
    other = DeferredToolRequests(calls=[ToolCallPart("ask", tool_call_id="a")])
    vars(other)["_kinds"] = None
    mark_as_questions(other, ["a"])
    assert vars(other)["_kinds"] is None
