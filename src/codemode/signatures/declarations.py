"""Declarations of tools as TypeScript, and one line for each of those too many. Knows nothing of programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..data.narrowing import mapping_or_empty, string_or_empty
from ..data.rich_values import is_rich
from .described_tool import DescribedTool, may_ask, rich_sides
from .json_schema import read_document
from .literals import comment_line, literal, member_name
from .shapes import Doc
from .typescript import Part, TypePrinter, indented, jsdoc, pascal_case

MAX_SENTENCE_CHARACTERS = 120
MAX_EXAMPLE_CHARACTERS = 300

# An open schema that lists no property still means that there is nothing to pass.
_EMPTY_INPUT_KEYWORDS = frozenset({"type", "properties", "required", "title", "description", "$schema"})
_NEEDS_INPUT = frozenset({"required", "minProperties", "anyOf", "oneOf", "allOf", "not", "if", "const", "enum", "$ref"})


def declare_tools(tools: Sequence[DescribedTool]) -> str:
    """``declare const tools: {...};`` with the type aliases it needs; complete TypeScript."""
    calls, aliases = call_types(tools)
    members = [f"{opening(tool)}{call};" for tool, call in zip(tools, calls, strict=True)]
    block = "declare const tools: {\n" + "".join(f"{indented(member)}\n" for member in members) + "};"
    return "\n\n".join([*aliases, block])


def call_types(tools: Sequence[DescribedTool], *, has_comments: bool = True) -> tuple[list[str], list[str]]:
    """For each tool ``(input: ...): Promise<...>``, and the declarations of the types that these share."""
    parts = [_parts(tool) for tool in tools]
    printer = TypePrinter((part for pair in parts for part in pair if part is not None), has_comments=has_comments)
    calls = [_call(tool, *pair, printer) for tool, pair in zip(tools, parts, strict=True)]
    return calls, printer.aliases()


_HEADING = re.compile(r"\A#{1,6}[ \t]+")


def first_sentence(text: str, max_characters: int = MAX_SENTENCE_CHARACTERS) -> str:
    """The first sentence or paragraph of a description, on one line."""
    paragraph = _HEADING.sub("", text.strip().split("\n\n", 1)[0][: max_characters * 4])
    line = comment_line(paragraph, len(paragraph) + 1)
    end = next((i + 1 for i, c in enumerate(line) if c in ".!?" and line[i + 1 : i + 2] in ("", " ")), len(line))
    return comment_line(line[:end], max_characters)


def summary_of(tool: DescribedTool) -> str:
    """The description of a tool, or what stands in for it."""
    for text in map(string_or_empty, (tool.description, tool.annotations.get("title"))):
        if text.strip():
            return text  # and no schema is compiled
    schema = mapping_or_empty(tool.input_json_schema)
    texts = map(string_or_empty, (schema.get("description"), schema.get("title")))
    return next((text for text in texts if text.strip()), "")


def _parts(tool: DescribedTool) -> tuple[Part | None, Part | None]:
    takes, gives = rich_sides(tool) if is_rich.get() else (False, False)
    return (
        _part(tool.input_json_schema, tool.name, "Input", takes),
        _part(tool.output_json_schema, tool.name, "Output", gives),
    )


def _part(schema: Any, tool_name: str, suffix: str, has_rich_values: bool) -> Part | None:
    if schema is None:
        return None
    return Part(read_document(schema, has_rich_values=has_rich_values), pascal_case(tool_name) + suffix)


def _call(tool: DescribedTool, takes: Part | None, gives: Part | None, printer: TypePrinter) -> str:
    returned = "unknown" if gives is None else printer.root(gives)
    return f"({_parameter(tool.input_json_schema, takes, printer)}): Promise<{returned}>"


def opening(tool: DescribedTool) -> str:
    return f"{jsdoc(tool_doc(tool))}{member_name(tool.name)}"


def _parameter(schema: Any, takes: Part | None, printer: TypePrinter) -> str:
    if takes is None:
        return "input?: unknown"
    known = mapping_or_empty(schema)
    mark = "?" if known.get("type") == "object" and not any(map(known.get, _NEEDS_INPUT)) else ""
    if known.get("properties") == {} and set(known) <= _EMPTY_INPUT_KEYWORDS:
        return f"input{mark}: Record<string, never>"
    return f"input{mark}: {printer.root(takes)}"


def tool_doc(tool: DescribedTool) -> Doc:
    """What stands in the comment of a tool: its summary, its annotations and an example."""
    return Doc(summary_of(tool), (*hint_tags(tool), *example_tags(tool)))


def hint_tags(tool: DescribedTool) -> list[str]:
    """Return the tags that say whether a call needs approval, and what the tool's annotations are."""
    hints = _hints(tool.annotations)
    tags = ["@approval"] if may_ask(tool) else []
    return [*tags, f"@annotations {', '.join(hints)}"] if hints else tags


def example_tags(tool: DescribedTool) -> list[str]:
    """The tag that shows an input of a tool, if it has an example."""
    if not tool.input_examples:
        return []
    return [f"@example {comment_line(literal(tool.input_examples[0]), MAX_EXAMPLE_CHARACTERS)}"]


def _hints(annotations: Mapping[str, Any]) -> list[str]:
    words = {
        ("readOnlyHint", True): "read-only",
        ("destructiveHint", True): "destructive",
        ("destructiveHint", False): "non-destructive",
        ("idempotentHint", True): "idempotent",
        ("openWorldHint", True): "open-world",
    }
    return [word for (hint, value), word in words.items() if annotations.get(hint) is value]
