"""The description of the ``codeMode`` tool: rules, declarations, examples. Knows nothing of how programs run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..data.narrowing import mapping_or_empty, string_or_empty
from .described_tool import DescribedTool
from .examples import call_example
from .json_schema import read_document
from .literals import comment_line, literal, member_name
from .shapes import Doc
from .typescript import Part, TypePrinter, indented, jsdoc, pascal_case

DEFAULT_MAX_CHARACTERS = 40_000
MAX_SENTENCE_CHARACTERS = 120
MAX_EXAMPLE_CHARACTERS = 300

_OPENING = """\
Runs a JavaScript program that calls tools, combines what they return, and returns one JSON value.
One program can replace many separate tool calls. TypeScript annotations are allowed: they are removed, not checked.

Rules for the program:
- It is the body of an async function: `await` and `return` work at the top level. What it returns is the result."""
_TOOL_RULES = """\
- Tools are called as `await tools.name(input)` with one object; only the tools described below exist.
- Every call must be awaited, alone or through `Promise.all`, which runs independent calls at the same time.
- A call that fails throws an Error; catch it to go on without that call."""
_CLOSING_RULES = """\
- Inputs and results are JSON only: a function inside is dropped, a Map or Set becomes {}; cycles are errors.
- Integers beyond 2^53 are BigInt, in results too: write 12345678901234567890n, and do not mix them with numbers.
- There is no import, require, timer, file system, process or DOM.
- `console.log` is captured for diagnosis; it is not the result."""
# An open schema that lists no property still means that there is nothing to pass.
_EMPTY_INPUT_KEYWORDS = frozenset({"type", "properties", "required", "title", "description", "$schema"})
_NEEDS_INPUT = frozenset({"required", "minProperties", "anyOf", "oneOf", "allOf", "not", "if", "const", "enum", "$ref"})
_NO_FETCH = "- There is no network and no `fetch`."
_NO_TOOLS = "There are no tools: `tools` is empty."
_LOOK_UP = """\
declare const tools: {
  /** The declaration of one tool as TypeScript. Read it before the first call. */
  $describe(name: string): Promise<string>;
  /** The tools that fit best, best first. */
  $search(query: string): Promise<{ name: string; description: string }[]>;
  [name: string]: (input: any) => Promise<any>;
};"""


def describe_tools(
    tools: Sequence[DescribedTool],
    *,
    fetch_line: str | None = None,
    max_characters: int = DEFAULT_MAX_CHARACTERS,
) -> str:
    """The whole description of the ``codeMode`` tool; the same tools give the same text.

    ``fetch_line`` says what ``fetch`` may reach; without it the program is told that there is none. When full
    declarations would pass ``max_characters``, tools are listed by name and first sentence, and the program is told of
    ``tools.$describe`` and ``tools.$search``.
    """
    if not tools:
        return f"{_rules(fetch_line, has_tools=False)}\n\n{_NO_TOOLS}"
    full = _full(tools, fetch_line, max_characters)
    if full is not None:
        return full
    rules = _rules(fetch_line, has_tools=True)
    return f"{rules}\n\n{_listing(tools, max_characters - len(rules))}"


def uses_listing(
    tools: Sequence[DescribedTool],
    *,
    fetch_line: str | None = None,
    max_characters: int = DEFAULT_MAX_CHARACTERS,
) -> bool:
    """Whether `describe_tools` lists the tools instead of declaring them."""
    return bool(tools) and _full(tools, fetch_line, max_characters) is None


def declare_tools(tools: Sequence[DescribedTool]) -> str:
    """``declare const tools: {...};`` with the type aliases it needs; complete TypeScript."""
    parts = [
        (
            _part(tool.input_json_schema, tool.name, "Input"),
            _part(tool.output_json_schema, tool.name, "Output"),
        )
        for tool in tools
    ]
    printer = TypePrinter(part for pair in parts for part in pair if part is not None)
    members = [_member(tool, *pair, printer) for tool, pair in zip(tools, parts, strict=True)]
    block = "declare const tools: {\n" + "".join(f"{indented(member)}\n" for member in members) + "};"
    return "\n\n".join([*printer.aliases(), block])


def first_sentence(text: str, max_characters: int = MAX_SENTENCE_CHARACTERS) -> str:
    """The first sentence or paragraph of a description, on one line."""
    paragraph = text.strip().split("\n\n", 1)[0][: max_characters * 4]
    line = comment_line(paragraph, len(paragraph) + 1)
    end = next((i + 1 for i, c in enumerate(line) if c in ".!?" and line[i + 1 : i + 2] in ("", " ")), len(line))
    return comment_line(line[:end], max_characters)


def summary_of(tool: DescribedTool) -> str:
    """The description of a tool, or what stands in for it."""
    schema = mapping_or_empty(tool.input_json_schema)
    texts = (tool.description, tool.annotations.get("title"), schema.get("description"), schema.get("title"))
    return next((text for text in map(string_or_empty, texts) if text.strip()), "")


def _full(tools: Sequence[DescribedTool], fetch_line: str | None, max_characters: int) -> str | None:
    # What is too long without a single type is not worth reading hundreds of schemas for.
    if sum(len(_opening(tool)) for tool in tools) > max_characters:
        return None
    rules = _rules(fetch_line, has_tools=True)
    full = f"{rules}\n\n{_fenced(declare_tools(tools))}\n\nExample:\n{_fenced(call_example(tools))}"
    return full if len(full) <= max_characters else None


def _rules(fetch_line: str | None, *, has_tools: bool) -> str:
    fetch = _NO_FETCH if fetch_line is None else "- " + " ".join(fetch_line.split())
    return "\n".join([_OPENING, *([_TOOL_RULES] if has_tools else []), _CLOSING_RULES, fetch])


def _fenced(code: str) -> str:
    # Longer than any run of backticks inside: a tool's description must not end the block it stands in.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}ts\n{code}\n{fence}"


def _part(schema: Any, tool_name: str, suffix: str) -> Part | None:
    if schema is None:
        return None
    return Part(read_document(schema), pascal_case(tool_name) + suffix)


def _member(tool: DescribedTool, takes: Part | None, gives: Part | None, printer: TypePrinter) -> str:
    returned = "unknown" if gives is None else printer.root(gives)
    parameter = _parameter(tool.input_json_schema, takes, printer)
    return f"{_opening(tool)}({parameter}): Promise<{returned}>;"


def _opening(tool: DescribedTool) -> str:
    return f"{jsdoc(_tool_doc(tool))}{member_name(tool.name)}"


def _parameter(schema: Any, takes: Part | None, printer: TypePrinter) -> str:
    if takes is None:
        return "input?: unknown"
    known = mapping_or_empty(schema)
    mark = "?" if known.get("type") == "object" and not any(map(known.get, _NEEDS_INPUT)) else ""
    if known.get("properties") == {} and set(known) <= _EMPTY_INPUT_KEYWORDS:
        return f"input{mark}: Record<string, never>"
    return f"input{mark}: {printer.root(takes)}"


def _tool_doc(tool: DescribedTool) -> Doc:
    tags: list[str] = []
    hints = _hints(tool.annotations)
    if hints:
        tags.append(f"@annotations {', '.join(hints)}")
    if tool.input_examples:
        tags.append(f"@example {comment_line(literal(tool.input_examples[0]), MAX_EXAMPLE_CHARACTERS)}")
    return Doc(summary_of(tool), tuple(tags))


def _hints(annotations: Mapping[str, Any]) -> list[str]:
    words = {
        ("readOnlyHint", True): "read-only",
        ("destructiveHint", True): "destructive",
        ("destructiveHint", False): "non-destructive",
        ("idempotentHint", True): "idempotent",
        ("openWorldHint", True): "open-world",
    }
    return [word for (hint, value), word in words.items() if annotations.get(hint) is value]


def _listing(tools: Sequence[DescribedTool], max_characters: int) -> str:
    head = (
        f"There are {len(tools)} tools, too many to declare here. Look one up before its first call:\n"
        f"{_fenced(_LOOK_UP)}\n\n"
    )
    room = max_characters - len(head)
    lines = [f"- {comment_line(tool.name, 200)}: {first_sentence(summary_of(tool))}" for tool in tools]
    for listed in (lines, [line.split(":", 1)[0] for line in lines]):
        text = "\n".join(["Tools:", *listed])
        if len(text) <= room:
            return head + text
    return head + _cut_names([tool.name for tool in tools], room)


def _cut_names(names: Sequence[str], room: int) -> str:
    shown: list[str] = []
    for name in names:
        room -= len(name) + 2
        if room < 100:
            break
        shown.append(comment_line(name, 200))
    if not shown:
        return "Find tools with `tools.$search`."
    return f"Some of them: {', '.join(shown)}. Find the others with `tools.$search`."
