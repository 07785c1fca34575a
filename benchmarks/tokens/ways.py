"""The five ways of working on a task, each played with the real product and the tools' functions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from codemode import (
    CallContext,
    CodeCallToolset,
    CodeModeError,
    CodeModeTool,
    CodeModeToolError,
    WorkerPool,
    create_code_call_tools,
    create_code_mode_tool,
    failure_text,
)

from .catalog import Catalog, definition
from .tasks import Task
from .transcript import Transcript, compact, result_text

# Enough for the declarations of all tools, which are listed by their names alone beyond 40,000 characters.
_ALL_DECLARED = {"max_description_characters": 200_000}

# Pages of GitHub have more properties than CodeCall leaves in a result by itself.
_UNCUT = {"max_sanitize_properties": 100_000}


class Played(NamedTuple):
    """What was said, and what the model knew in the end, from which it answered."""

    transcript: Transcript
    data: Any


# The name of a call, its input, and the text that came back.
Written = tuple[str, Any, str]
Way = Callable[[Task], Awaitable[Played]]


class Ways:
    """All ways over one catalog. One task in one way at a time: they share the world."""

    def __init__(self, pool: WorkerPool, timeout_ms: int | None = None, *, catalog: Catalog | None = None) -> None:
        """``timeout_ms`` is for programs on machines that are busy; None leaves what each surface has by itself."""
        policy = {"timeout_ms": timeout_ms} if timeout_ms else {}
        vm = {"vm": {"timeout_ms": timeout_ms}} if timeout_ms else {}
        self.catalog = catalog or Catalog()
        tools = self.catalog.tools
        self._declared = create_code_mode_tool(tools, {"execution_policy": {**policy, **_ALL_DECLARED}}, pool=pool)
        self._named = create_code_mode_tool(tools, {"execution_policy": policy}, pool=pool)
        self._code_call = create_code_call_tools(tools, {"names": "underscore", **vm}, pool=pool)
        direct = {"direct_calls": {"enabled": True}, "vm": {"timeout_ms": timeout_ms or 3_500, **_UNCUT}}
        self._found = create_code_call_tools(tools, {"names": "underscore", **direct}, pool=pool)
        self._all_tools = compact(self.catalog.definitions())

    def by_name(self) -> dict[str, Way]:
        """Return all, in the order of the table."""
        return {
            "direct": self.direct,
            "direct, by search": self.found,
            "codeMode": self.code_mode,
            "codeMode, names listed": self.code_mode_named,
            "CodeCall": self.code_call,
        }

    async def direct(self, task: Task) -> Played:
        """All tools are offered to the model; calls that do not need each other are made in one turn."""
        self.catalog.begin()
        transcript = Transcript(self._all_tools, task.question)

        async def called(name: str, given: Any) -> tuple[Written, Any]:
            result = await self.catalog.direct(name, given)
            return (name, given, result_text(result)), result

        return _answered(task, transcript, await _directly(task, transcript, called))

    async def code_mode(self, task: Task) -> Played:
        """One tool, in whose description all tools are declared with their return types."""
        self.catalog.begin()
        transcript = Transcript(_listing(self._declared), task.question)
        return _answered(task, transcript, await self._run_all(self._declared, task, transcript))

    async def code_mode_named(self, task: Task) -> Played:
        """One tool as it is made without options: it lists so many by name, and the first program looks them up."""
        self.catalog.begin()
        transcript = Transcript(_listing(self._named), task.question)
        js = f"return await Promise.all({json.dumps(task.tools)}.map((name) => tools.$describe(name)));"
        await self._run(self._named, js, transcript)
        return _answered(task, transcript, await self._run_all(self._named, task, transcript))

    async def code_call(self, task: Task) -> Played:
        """Three tools: the model searches, reads the definitions that fit, and runs scripts."""
        self.catalog.begin()
        transcript = Transcript(_offered(self._code_call), task.question)
        await self._find(task, transcript)
        answer: Any = None
        for script in task.code_call_scripts:
            answer = await self._code_call.execute({"script": script})
            transcript.call(("codecall_execute", {"script": script}, compact(answer)))
        return _answered(task, transcript, answer.get("result", answer))

    async def found(self, task: Task) -> Played:
        """The same search without programs: the model makes direct calls of what it has found, by `codecall_invoke`."""
        self.catalog.begin()
        transcript = Transcript(_offered(self._found, without="codecall_execute"), task.question)
        await self._find(task, transcript)

        async def called(name: str, given: Any) -> tuple[Written, Any]:
            asked = {"tool": name, "input": given}
            answer = await self._found.invoke(asked)
            error = answer.get("error")
            result = answer["result"] if error is None else CodeModeToolError(error["message"])
            return ("codecall_invoke", asked, compact(answer)), result

        return _answered(task, transcript, await _directly(task, transcript, called))

    async def _find(self, task: Task, transcript: Transcript) -> None:
        """Search, and read the definitions. Raises `LookupError` where a tool that programs call is not found."""
        found = set[str]()
        for queries in task.searches:
            answers = [await self._code_call.search({"query": query}) for query in queries]
            pairs = zip(queries, answers, strict=True)
            transcript.call(*(("codecall_search", {"query": query}, compact(answer)) for query, answer in pairs))
            found |= {one["name"] for answer in answers for one in answer["tools"]}
        if missed := set(task.tools) - found:
            raise LookupError(f"{task.name}: the searches do not find {sorted(missed)}")
        given = {"tools": task.tools}
        transcript.call(("codecall_describe", given, compact(await self._code_call.describe(given))))

    async def _run_all(self, code_mode: CodeModeTool, task: Task, transcript: Transcript) -> Any:
        last: Any = None
        for js in task.programs:
            last = await self._run(code_mode, js, transcript)
        return last

    async def _run(self, code_mode: CodeModeTool, js: str, transcript: Transcript) -> Any:
        """Run a program, add what the model is shown of its end, and return its value: None where it failed."""
        result: Any = None
        call_id = f"call_{len(transcript.turns)}"
        try:
            result = await code_mode.execute({"js": js}, call=CallContext(tool_call_id=call_id))
        except CodeModeError as error:
            text = failure_text(error, js)
        else:
            text = result_text(code_mode.to_model_output(result, tool_call_id=call_id)["value"])
        transcript.call((code_mode.name, {"js": js}, text))
        return result


async def _directly(
    task: Task, transcript: Transcript, called: Callable[[str, Any], Awaitable[tuple[Written, Any]]]
) -> Any:
    """Make the calls of a task turn by turn, and return what its model knows then."""
    playing = task.direct()
    try:
        calls = next(playing)
        while True:
            made = [await called(name, given) for name, given in calls]
            transcript.call(*(written for written, _ in made))
            # What the model reads is the JSON that it was shown.
            results = [one if isinstance(one, Exception) else json.loads(compact(one)) for _, one in made]
            calls = playing.send(results)
    except StopIteration as ended:
        return ended.value


def _offered(code_call: CodeCallToolset, without: str = "") -> str:
    tools = [one for one in code_call.tools if one.name != without]
    return compact([definition(one.name, one.description, one.input_schema) for one in tools])


def _listing(code_mode: CodeModeTool) -> str:
    return compact([definition(code_mode.name, code_mode.description, code_mode.input_schema)])


def _answered(task: Task, transcript: Transcript, data: Any) -> Played:
    read = task.read(data)
    transcript.answer(task.answer(read))
    return Played(transcript, read)
