"""What a model or a host gives CodeCall, however large, is read, checked and told of off the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from suite import each_row
from waiting import until, within

from codemode import CodeModeToolError, Tool, create_code_call_tools
from codemode.execution import execution
from codemode.host import steps
from codemode.observe import meta_tools
from codemode.surfaces.code_call import index, meta_calls, requests
from codemode.surfaces.code_call.index import CodeCallCatalog
from codemode.surfaces.code_call.requests import MAX_STRINGS

MANY = 50_000
NAMES = [f"name{at}" for at in range(MANY)]
CHARACTERS = "\u00e9" * 3_000_000
PROPERTIES = {f"p{at}": {"type": "string"} for at in range(5000)}
DIRECT = {"direct_calls": {"enabled": True}}


async def same(value: Any) -> Any:
    return value


TOOLS = [
    Tool("same", execute=same, description="Says it again."),
    Tool("large", execute=same, input_schema={"type": "object", "properties": PROPERTIES}),
]


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], set[bool]]:
    """Return what tells where something runs to its end: True for the thread of the loop."""

    def watch(owner: Any, name: str) -> set[bool]:
        seen: set[bool] = set()
        real = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            try:
                return real(*given, **named)
            finally:
                if not isinstance(sys.exception(), steps.LoopBudgetExceeded):
                    seen.add(threading.current_thread() is threading.main_thread())

        monkeypatch.setattr(owner, name, watched)
        return seen

    return watch


LARGE = [
    ("search", "parse_search_input", {"query": "say", "excludeToolNames": NAMES}),
    ("search", "parse_search_input", {"query": CHARACTERS}),
    ("search", "parse_search_input", {"queries": [CHARACTERS, "say"]}),
    ("search", "parse_search_input", {"query": "say", "filter": {"tags": NAMES}}),
    ("search", "parse_search_input", dict.fromkeys(NAMES, 1)),
    ("describe", "parse_describe_input", {"tools": NAMES}),
    ("describe", "parse_describe_input", {"toolNames": [CHARACTERS]}),
    ("execute", "_parse_execute_request", {"script": "return 1", "allowedTools": NAMES}),
    ("execute", "_parse_execute_request", {"script": "return 1", "context": {"all": NAMES}}),
    ("execute", "_parse_execute_request", {"script": "return 1", "context": dict.fromkeys(NAMES, CHARACTERS)}),
    ("execute", "_parse_execute_request", {"script": "return 1", "more": CHARACTERS}),
    ("invoke", "_parse_invoke_request", {"tool": "same", "input": {"all": NAMES}}),
    ("invoke", "_parse_invoke_request", {"tool": CHARACTERS, "input": {}}),
]


@each_row("meta, read, given", LARGE, ids=[f"{meta}{at}" for at, (meta, *_) in enumerate(LARGE)])
def test_loop_a_large_input_of_a_meta_tool_is_read_elsewhere(where, meta: str, read: str, given: dict[str, Any]):
    seen = where(requests if read.startswith("_") else meta_calls, read)
    code_call = create_code_call_tools(TOOLS, DIRECT)
    try:
        answer = within(code_call.call(f"codecall.{meta}", given))
    except CodeModeToolError as error:
        answer = error.details["problems"]
    assert answer
    assert seen == {False}


@pytest.mark.parametrize(
    ("meta", "read", "given"),
    [
        ("search", "parse_search_input", {"query": "say"}),
        ("describe", "parse_describe_input", {"tools": ["same"]}),
        ("execute", "_parse_execute_request", {"script": "return 1 //" + " " * 60_000, "allowedTools": []}),
        ("invoke", "_parse_invoke_request", {"tool": "same", "input": 1}),
    ],
)
def test_loop_a_small_one_is_read_at_once(where, meta: str, read: str, given: dict[str, Any]):
    seen = where(requests if read.startswith("_") else meta_calls, read)
    within(create_code_call_tools(TOOLS, DIRECT).call(f"codecall.{meta}", given))
    assert seen == {True}


@pytest.mark.parametrize(
    ("meta", "given", "path"),
    [
        ("search", {"query": "say", "appIds": ["a"] * (MAX_STRINGS + 1)}, "appIds"),
        ("search", {"query": "say", "filter": {"tags": ["a"] * (MAX_STRINGS + 1)}}, "filter.tags"),
        ("search", {"queries": ["a"] * (MAX_STRINGS + 1)}, "queries"),
        ("describe", {"tools": ["a"] * (MAX_STRINGS + 1)}, "tools"),
        ("execute", {"script": "return 1", "allowedTools": ["a"] * (MAX_STRINGS + 1)}, "allowedTools"),
    ],
)
def test_loop_a_list_of_names_without_end_is_refused(meta: str, given: dict[str, Any], path: str):
    with pytest.raises(CodeModeToolError) as caught:
        within(create_code_call_tools(TOOLS).call(f"codecall.{meta}", given))
    assert caught.value.details["problems"][0]["path"] == path
    assert str(MAX_STRINGS) in caught.value.message


def test_loop_many_allowed_names_are_compared_elsewhere_and_only_tools_are_given():
    code_call = create_code_call_tools(TOOLS)
    script = "return [typeof getTool('same'), typeof getTool('large')]"
    answer = within(code_call.execute({"script": script, "allowedTools": [*NAMES, "same"]}))
    assert answer["result"] == ["object", "undefined"]
    assert len(answer["warnings"][0]) < 200


def test_loop_a_script_of_any_size_is_measured_elsewhere(where):
    checked, told = where(execution, "validate_source"), where(execution, "measure_and_hash_source")
    records: list[Any] = []
    code_call = create_code_call_tools(TOOLS, {"settings": {"lifecycle": {"on_invocation_start": records.append}}})
    answer = within(code_call.execute({"script": CHARACTERS}))
    assert answer["error"]["name"] == "ScriptTooLargeError"
    assert str(2 * len(CHARACTERS)) in answer["error"]["message"]
    assert records[0].source_bytes == 2 * len(CHARACTERS)
    assert False in checked
    assert False in told


def test_loop_a_context_of_the_host_is_read_elsewhere(where):
    seen = where(requests, "_parse_execute_request")
    code_call = create_code_call_tools(TOOLS)
    with pytest.raises(ValueError, match="script_context"):
        within(code_call.execute({"script": "return 1"}, script_context={"all": NAMES}))
    fits = {"all": NAMES[:3000]}
    answer = within(code_call.execute({"script": "return codecallContext.all.length"}, script_context=fits))
    assert answer["result"] == 3000
    assert seen == {False}


def test_loop_a_large_definition_is_copied_and_sent_from_elsewhere(where):
    copied = where(meta_calls, "deepcopy")
    code_call = create_code_call_tools(TOOLS)
    (definition,) = within(code_call.describe({"tools": ["large"]}))["tools"]
    assert len(definition["inputSchema"]["properties"]) == len(PROPERTIES)
    assert copied == {False}
    script = "return Object.keys(getTool('large').inputSchema.properties).length"
    assert within(code_call.execute({"script": script}))["result"] == len(PROPERTIES)


def test_loop_definitions_are_weighed_elsewhere_also_where_they_are_too_large_to_go_along(where):
    wide = {"type": "object", "properties": {f"property{number}": {"title": "x" * 40} for number in range(20_000)}}
    code_call = create_code_call_tools([Tool(f"wide{n}", execute=id, input_schema=wide) for n in range(3)])
    seen = where(CodeCallCatalog, "_get_definitions_within_size_limit")
    script = f"return ['wide0', 'wide1'].length + typeof getTool('wide0') // {'x' * 3000}"
    assert within(code_call.execute({"script": script}))["status"] == "runtime_error"
    assert seen == {False}


# --- the tools that there are ---


def test_loop_an_update_goes_on_beside_the_loop(where):
    """The filter waits for the loop, which therefore goes on while it is asked."""
    asked, is_reusable, heard = threading.Event(), threading.Event(), list[Any]()

    def include_tools(info: Any) -> bool:
        if info.name == "new":
            asked.set()
            assert is_reusable.wait(60)
        return True

    code_call = create_code_call_tools(TOOLS, {"include_tools": include_tools})
    code_call.on_tools_changed(lambda change: heard.append((change, threading.current_thread())))

    async def whole() -> None:
        updating = asyncio.ensure_future(code_call.update_async([*TOOLS, Tool("new", execute=same)]))
        await until(asked.is_set)
        assert "new" not in code_call
        is_reusable.set()
        await updating

    within(whole())
    assert "new" in code_call
    ((change, thread),) = heard
    assert change["added"] == ["new"]
    assert thread is threading.main_thread()


def test_loop_an_update_that_is_refused_changes_nothing(where):
    seen = where(index, "reject_confusable_names")
    code_call = create_code_call_tools(TOOLS)
    with pytest.raises(ValueError, match="meta-tool"):
        within(code_call.update_async([Tool("codecall.x", execute=same)]))
    assert (code_call.version, "same" in code_call) == (1, True)
    within(code_call.update_async(TOOLS[:1]))
    assert (code_call.version, "large" in code_call) == (2, False)
    assert seen == {True, False}


# --- who is told ---


@pytest.mark.parametrize("is_async", [False, True])
def test_loop_a_large_input_is_read_elsewhere_for_who_is_told_and_in_order(where, is_async: bool):
    read, heard = where(meta_tools, "create_notification"), list[Any]()

    async def hear(message: dict[str, Any]) -> None:
        heard.append(message)

    notify = hear if is_async else heard.append
    code_call = create_code_call_tools(TOOLS, {"notify": notify, **DIRECT})
    script = """
      mcpNotify('begun');
      const all = Array.from({ length: 20000 }, (_, n) => n);
      await callTool('same', { all });
      mcpNotify('half');
      await callTool('same', { n: 1 });
      mcpNotify('done');
    """
    assert within(code_call.execute({"script": script}))["status"] == "ok"
    assert [one.get("event") or one["type"] for one in heard] == [
        "begun", "tool_call_start", "tool_call_end", "half", "tool_call_start", "tool_call_end", "done",
    ]  # fmt: skip
    assert heard[1]["input"] == {"all": list(range(20_000))}
    assert heard[4]["input"] == {"n": 1}
    assert False in read
    heard.clear()
    within(code_call.invoke({"tool": "same", "input": {"all": NAMES}}))
    assert [one["type"] for one in heard] == ["tool_call_start", "tool_call_end"]
    assert heard[0]["input"] == {"all": NAMES}
