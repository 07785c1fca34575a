"""Build the description of the `codeMode` tool: rules and tool declarations."""

from __future__ import annotations

from collections.abc import Sequence

from ...data.rich_values import is_rich
from ...execution.call_context import RICH_VALUES_RULE, STATE_RULE
from ...options.parts import ExecutionPolicy, Listing
from ...signatures.declarations import (
    extract_first_sentence,
    find_tool_description,
    format_name_with_jsdoc,
    format_tool_declarations,
)
from ...signatures.described_tool import DescribedTool, may_need_approval
from ...signatures.examples import create_example_program
from ...signatures.literals import fence_typescript, to_comment_line

_OPENING = """\
Runs a JavaScript program that calls tools, combines their results, and returns one JSON value.
One program replaces many tool calls. TypeScript annotations are removed, not checked.

Rules for the program:
- It is the body of an async function: `await` works at the top level, and what it returns is the result."""


_TOOL_RULES = """\
- `await tools.name(input)` calls a tool with one object; {which}.
- Await every call; `Promise.all` runs independent ones at once{at_once}.
- A failed call throws an Error; catch it to continue."""


_APPROVAL_RULE = "- A call of a tool marked @approval waits for a person: make such calls together, to wait once."
_JSON_RULE = "- Inputs and results are JSON only: functions are dropped, a Map or Set becomes {}, cycles are errors."
_CLOSING_RULES = """\
- Integers beyond 2^53 are BigInt, in results too: write 12345678901234567890n, never mixed with numbers.
- There is no import, require, timer, file system, process or DOM.
- Dates and `toLocaleString`: UTC and en-US only, no currency, no Intl.
- `console.log` is for diagnosis; it is not the result."""


_NO_FETCH = "- There is no network and no `fetch`."
_NO_TOOLS = "There are no tools: `tools` is empty."
_DESCRIBED_TOOLS = "only the tools described below exist"
_SEARCHED_TOOLS = "only the tools that `tools.$search` finds exist"
_LOOKUP_DECLARATION = """\
declare const tools: {
  /** The declaration of one tool as TypeScript. Read it before the first call. */
  $describe(name: string): Promise<string>;
  /** The tools that fit best, best first. */
  $search(query: string): Promise<{ name: string; description: string }[]>;
  [name: string]: (input: any) => Promise<any>;
};"""
_SEARCH_SECTION = f"""\
No tool is declared here. Find those that fit, and read their declarations before the first call:
{fence_typescript(_LOOKUP_DECLARATION)}

Example of a first program:
```ts
const found = await tools.$search("what the tool should do");
return await Promise.all(found.map(({{ name }}) => tools.$describe(name)));
```"""


def describe_code_mode_tool(
    tools: Sequence[DescribedTool],
    *,
    fetch_line: str | None = None,
    has_state: bool = False,
    max_characters: int = ExecutionPolicy.max_description_characters,
    listing: Listing = "full",
    max_at_once: int | None = None,
) -> str:
    """Return the description of the ``codeMode`` tool. The same tools always give the same text.

    ``fetch_line`` states what ``fetch`` can reach; None means no network. ``has_state`` adds the rules for `state`. If
    full declarations exceed ``max_characters``, or ``listing`` is "names", tools are listed by name and first sentence,
    with ``tools.$describe`` and ``tools.$search``. With "search" no tool is listed, so all tool sets give the same
    text. ``max_at_once`` is the number of concurrent calls beyond which a call fails; None if calls queue.
    """
    limit_text = "" if max_at_once is None else f", at most {max_at_once}; one more throws"
    tool_rules = _TOOL_RULES.format(
        which=_SEARCHED_TOOLS if listing == "search" else _DESCRIBED_TOOLS, at_once=limit_text
    )
    extra_rules = [STATE_RULE] if has_state else []
    if listing != "search" and any(map(may_need_approval, tools)):
        extra_rules.append(_APPROVAL_RULE)
    rules = _format_rules(fetch_line, extra_rules, tool_rules if tools or listing == "search" else None)
    if listing == "search":
        return f"{rules}\n\n{_SEARCH_SECTION}"
    if not tools:
        return f"{rules}\n\n{_NO_TOOLS}"
    full = _describe_tools_in_full(tools, rules, max_characters) if listing == "full" else None
    if full is not None:
        return full
    reason = ", too many to declare here" if listing == "full" else ""
    return f"{rules}\n\n{_format_tool_list(tools, reason, max_characters - len(rules))}"


def _describe_tools_in_full(tools: Sequence[DescribedTool], rules: str, max_characters: int) -> str | None:
    # Skip reading hundreds of schemas if names and comments alone exceed the limit.
    if sum(len(format_name_with_jsdoc(tool)) for tool in tools) > max_characters:
        return None
    declarations, example = (
        fence_typescript(format_tool_declarations(tools)),
        fence_typescript(create_example_program(tools)),
    )
    full = f"{rules}\n\n{declarations}\n\nExample:\n{example}"
    return full if len(full) <= max_characters else None


def _format_rules(fetch_line: str | None, extra_rules: Sequence[str], tool_rules: str | None) -> str:
    fetch = _NO_FETCH if fetch_line is None else "- " + " ".join(fetch_line.split())
    tool_lines = [] if tool_rules is None else [tool_rules]
    values = RICH_VALUES_RULE if is_rich.get() else _JSON_RULE
    return "\n".join([_OPENING, *tool_lines, values, _CLOSING_RULES, fetch, *extra_rules])


def _format_tool_list(tools: Sequence[DescribedTool], reason: str, max_characters: int) -> str:
    lookup = fence_typescript(_LOOKUP_DECLARATION)
    head = f"There are {len(tools)} tools{reason}. Look one up before its first call:\n{lookup}\n\n"
    max_list_characters = max_characters - len(head)
    lines = [
        f"- {to_comment_line(tool.name, 200)}: {extract_first_sentence(find_tool_description(tool))}" for tool in tools
    ]
    for variant in (lines, [line.split(":", 1)[0] for line in lines]):
        text = "\n".join(["Tools:", *variant])
        if len(text) <= max_list_characters:
            return head + text
    return head + _format_some_tool_names([tool.name for tool in tools], max_list_characters)


def _format_some_tool_names(names: Sequence[str], remaining: int) -> str:
    names_shown: list[str] = []
    for name in names:
        remaining -= len(name) + 2
        if remaining < 100:
            break
        names_shown.append(to_comment_line(name, 200))
    if not names_shown:
        return "Find tools with `tools.$search`."
    return f"Some of them: {', '.join(names_shown)}. Find the others with `tools.$search`."
