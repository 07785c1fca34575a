"""Report undefined names with what to use instead. Runs in the host; facts are hostile."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..host import steps
from .checks import MAX_NAME_LENGTH, folded_name, placed_items, problem_at

if TYPE_CHECKING:
    from ..data.program_facts import ProgramProblem

MAX_PROBLEMS = 8
_OTHER_CALLS = ("tools", "callTool")  # how tools are called on other surfaces
_NO_NETWORK = "there is no network here: call a tool"
_NO_TIMER = "there are no timers here: leave it out, a call is awaited as long as it takes"
_NO_OTHER_HOST = "this is no Node.js and no browser: do without it, or call a tool"
_NO_LOCALES = "there are UTC and en-US alone: build the text in the program"
ABSENT = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket", "EventSource", "axios"), _NO_NETWORK),
    **dict.fromkeys(("Request", "Response", "Headers", "FormData", "AbortController"), _NO_NETWORK),
    **dict.fromkeys(("setTimeout", "setInterval", "setImmediate", "clearInterval"), _NO_TIMER),
    **dict.fromkeys(("process", "Buffer", "Bun", "Deno", "document", "window", "localStorage"), _NO_OTHER_HOST),
    **dict.fromkeys(("navigator", "crypto", "Blob"), _NO_OTHER_HOST),
    **dict.fromkeys(("Intl", "Temporal"), _NO_LOCALES),
    "performance": "use Date.now()",
    **dict.fromkeys(("print", "alert"), "write console.log(value)"),
    "structuredClone": "copy with JSON.parse(JSON.stringify(value))",
}
"""What to use in place of names of other hosts."""


def check_free_names(facts: Any, tools: Collection[str], has: Collection[str], tool_call: str) -> list[ProgramProblem]:
    """The names that are not there, each ``{"message", "line", "column"}``.

    ``facts`` is what the worker reported, unverified; ``tools`` the names that a program calls, ``has`` the globals of
    its surface. ``tool_call`` shows how a tool ``{name}`` is called there.
    """
    return list(islice(_problems(facts, tools, has, tool_call), MAX_PROBLEMS))


def _problems(facts: Any, tools: Collection[str], has: Collection[str], tool_call: str) -> Iterator[ProgramProblem]:
    folded: dict[str, str] | None = None
    for use in placed_items(facts, "free"):
        steps.take()
        name = use.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or name in has:
            continue
        tool = name if name in tools else None
        if tool is None and use.get("called") is True and name not in ABSENT:
            folded = {folded_name(one): one for one in tools} if folded is None else folded
            tool = folded.get(folded_name(name))
        if tool is not None and use.get("called") is True:
            yield problem_at(use, f"`{name}` is not defined: write `{tool_call.format(name=tool)}`")
        elif name in _OTHER_CALLS:
            yield problem_at(use, f"`{name}` is not defined: write `{tool_call.format(name='name')}`")
        elif name in ABSENT:
            yield problem_at(use, f"`{name}` is not defined: {ABSENT[name]}")
