"""Declares tools as TypeScript, with one line for each tool beyond the budget."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..data.narrowing import mapping_or_empty, string_or_empty
from ..data.rich_values import is_rich
from .described_tool import DescribedTool, get_rich_input_and_output_flags, may_need_approval
from .json_schema import read_schema_as_shapes
from .literals import to_comment_line, to_literal, to_member_name
from .shapes import JsDoc
from .typescript import NamedDocument, TypePrinter, format_jsdoc, indent_lines, to_pascal_case

MAX_SENTENCE_CHARACTERS = 120
MAX_EXAMPLE_CHARACTERS = 300

# An open schema that lists no property still means that there is nothing to pass.
_EMPTY_INPUT_KEYWORDS = frozenset({"type", "properties", "required", "title", "description", "$schema"})
_NEEDS_INPUT = frozenset({"required", "minProperties", "anyOf", "oneOf", "allOf", "not", "if", "const", "enum", "$ref"})


def format_tool_declarations(tools: Sequence[DescribedTool]) -> str:
    """``declare const tools: {...};`` with the type aliases it needs; complete TypeScript."""
    calls, aliases = create_call_types_and_aliases(tools)
    members = [f"{format_name_with_jsdoc(tool)}{call};" for tool, call in zip(tools, calls, strict=True)]
    block = "declare const tools: {\n" + "".join(f"{indent_lines(member)}\n" for member in members) + "};"
    return "\n\n".join([*aliases, block])


def create_call_types_and_aliases(
    tools: Sequence[DescribedTool], *, has_comments: bool = True, has_handles: bool = True
) -> tuple[list[str], list[str]]:
    """For each tool ``(input: ...): Promise<...>``, and the declarations of the types that these share.

    Without ``has_handles`` images, audio and files are objects with base64.
    """
    parts = [_create_input_and_output_documents(tool) for tool in tools]
    printer = TypePrinter(
        (part for pair in parts for part in pair if part is not None),
        has_comments=has_comments,
        has_handles=has_handles,
    )
    calls = [_print_call_signature(tool, *pair, printer) for tool, pair in zip(tools, parts, strict=True)]
    return calls, printer.print_aliases()


_HEADING = re.compile(r"\A#{1,6}[ \t]+")


def extract_first_sentence(text: str, max_characters: int = MAX_SENTENCE_CHARACTERS) -> str:
    """The first sentence or paragraph of a description, on one line."""
    paragraph = _HEADING.sub("", text.strip().split("\n\n", 1)[0][: max_characters * 4])
    line = to_comment_line(paragraph, len(paragraph) + 1)
    end = next((i + 1 for i, c in enumerate(line) if c in ".!?" and line[i + 1 : i + 2] in ("", " ")), len(line))
    return to_comment_line(line[:end], max_characters)


def find_tool_description(tool: DescribedTool) -> str:
    """The description of a tool, or what stands in for it."""
    for text in map(string_or_empty, (tool.description, tool.annotations.get("title"))):
        if text.strip():
            return text  # and no schema is compiled
    schema = mapping_or_empty(tool.input_json_schema)
    texts = map(string_or_empty, (schema.get("description"), schema.get("title")))
    return next((text for text in texts if text.strip()), "")


def _create_input_and_output_documents(tool: DescribedTool) -> tuple[NamedDocument | None, NamedDocument | None]:
    has_rich_input, has_rich_output = get_rich_input_and_output_flags(tool) if is_rich.get() else (False, False)
    return (
        _create_named_document(tool.input_json_schema, tool.name, "Input", has_rich_input),
        _create_named_document(tool.output_json_schema, tool.name, "Output", has_rich_output),
    )


def _create_named_document(schema: Any, tool_name: str, suffix: str, has_rich_values: bool) -> NamedDocument | None:
    if schema is None:
        return None
    return NamedDocument(
        read_schema_as_shapes(schema, has_rich_values=has_rich_values), to_pascal_case(tool_name) + suffix
    )


def _print_call_signature(
    tool: DescribedTool, input_part: NamedDocument | None, output_part: NamedDocument | None, printer: TypePrinter
) -> str:
    return_type = "unknown" if output_part is None else printer.print_root(output_part)
    return f"({_print_parameter(tool.input_json_schema, input_part, printer)}): Promise<{return_type}>"


def format_name_with_jsdoc(tool: DescribedTool) -> str:
    return f"{format_jsdoc(create_tool_jsdoc(tool))}{to_member_name(tool.name)}"


def _print_parameter(schema: Any, input_part: NamedDocument | None, printer: TypePrinter) -> str:
    if input_part is None:
        return "input?: unknown"
    schema_rules = mapping_or_empty(schema)
    optional_mark = "?" if schema_rules.get("type") == "object" and not any(map(schema_rules.get, _NEEDS_INPUT)) else ""
    if schema_rules.get("properties") == {} and set(schema_rules) <= _EMPTY_INPUT_KEYWORDS:
        return f"input{optional_mark}: Record<string, never>"
    return f"input{optional_mark}: {printer.print_root(input_part)}"


def create_tool_jsdoc(tool: DescribedTool) -> JsDoc:
    """Return the comment of a tool: its summary, its annotations and an example."""
    return JsDoc(find_tool_description(tool), (*create_hint_tags(tool), *create_example_tags(tool)))


def create_hint_tags(tool: DescribedTool) -> list[str]:
    """Return the tags that say whether a call needs approval, and what the tool's annotations are."""
    hints = _describe_annotations(tool.annotations)
    tags = ["@approval"] if may_need_approval(tool) else []
    return [*tags, f"@annotations {', '.join(hints)}"] if hints else tags


def create_example_tags(tool: DescribedTool) -> list[str]:
    """The tag that shows an input of a tool, if it has an example."""
    if not tool.input_examples:
        return []
    return [f"@example {to_comment_line(to_literal(tool.input_examples[0]), MAX_EXAMPLE_CHARACTERS)}"]


def _describe_annotations(annotations: Mapping[str, Any]) -> list[str]:
    word_by_hint = {
        ("readOnlyHint", True): "read-only",
        ("destructiveHint", True): "destructive",
        ("destructiveHint", False): "non-destructive",
        ("idempotentHint", True): "idempotent",
        ("openWorldHint", True): "open-world",
    }
    return [word for (hint, value), word in word_by_hint.items() if annotations.get(hint) is value]
