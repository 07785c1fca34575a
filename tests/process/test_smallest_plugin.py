"""The plugin of integrations/PLUGIN.md keeps the promises of every plugin, in its framework that does not exist."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import tomllib
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import tinyloop
from codemode_tinyloop import code_mode, convert
from pydantic import TypeAdapter
from required import missing

import codemode
from codemode.testing.contract import (
    CODE_MODE,
    CONTENT,
    SELECTION,
    STATE,
    Check,
    ContractAnswer,
    ContractTool,
    Failed,
    Finished,
    Hear,
    Outcome,
    Paused,
    PluginUnderTest,
    WaitingCall,
    asks_approvals_for_nested_agents,
    contract_id,
    runs_sequential_tools_alone,
    without,
)

WAIT_SECONDS = 120.0


class Plugin:
    """Agents of Tinyloop whose only tool is that of `code_mode`. A state is their messages and what is kept."""

    face = CODE_MODE

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def with_settings(self, **settings: Any) -> PluginUnderTest:
        return type(self)(**self._settings, **settings)

    def create_content_part(self, data: bytes, mime_type: str) -> Any:
        raise NotImplementedError

    def get_content_bytes(self, part: Any) -> bytes:
        raise NotImplementedError

    async def describe_tools(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        return {one.name: one.description for one in self._agent(tools).tools}

    async def call(
        self,
        tools: Sequence[ContractTool],
        name: str,
        given: Mapping[str, Any],
        *,
        after: str = "",
        hear: Hear | None = None,
    ) -> Outcome:
        asked = {"role": "model", "calls": [{"id": str(uuid.uuid4()), "name": name, "arguments": dict(given)}]}
        follow: Any = {} if hear is None else {"follow": lambda what, call: hear(call.name, what)}
        messages: list[dict[str, Any]] = [*(json.loads(after) if after else []), {"role": "user", "text": "go"}]
        return self._outcome(await self._agent(tools, asked, **follow).run(messages))

    async def resume(self, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]) -> Outcome:
        messages, kept = json.loads(state)
        decisions = {
            call_id: tinyloop.Decision(approved=one.approved, arguments=one.input, message=one.reason or "denied")
            for call_id, one in answers.items()
        }
        return self._outcome(await self._agent(tools).run(messages, kept, decisions))

    def create_agent_function(self, tools: Sequence[ContractTool], program: str) -> Any:
        name, given = self.face.request(program)

        async def ask() -> Any:
            """Ask another agent."""
            outcome = await self.call(tools, name, given)
            return outcome.value if isinstance(outcome, Finished) else repr(outcome)

        return ask

    def _agent(self, tools: Sequence[ContractTool], *turns: Any, **given: Any) -> tinyloop.Agent:
        said: list[Any] = [*turns, {"role": "model", "text": "done"}]
        offered = code_mode([_tiny_tool(one) for one in tools], **self._settings)
        return tinyloop.Agent(model=lambda _messages, _tools: said.pop(0), tools=[offered], **given)

    def _outcome(self, result: tinyloop.Result) -> Outcome:
        if result.waiting:
            waiting = [WaitingCall(id=one.id, tool_name=one.name, input=one.arguments) for one in result.waiting]
            return Paused(calls=waiting, state=json.dumps([result.messages, result.kept]))
        answer = next(one for one in reversed(result.messages) if one["role"] == "tool")
        conversation = json.dumps(result.messages)
        if answer["failed"]:
            return Failed(text=answer["text"], conversation=conversation)
        return Finished(value=answer["text"], conversation=conversation)


def _tiny_tool(one: ContractTool) -> tinyloop.Tool:
    returned = get_type_hints(one.function).get("return", Any)
    return tinyloop.Tool(
        name=one.name,
        description=inspect.getdoc(one.function) or "",
        parameters=TypeAdapter(one.function).json_schema(),
        function=one.function,
        needs_approval=one.needs_approval,
        returns=TypeAdapter(returned).json_schema(),
    )


def rows() -> Iterator[Check]:
    # Tinyloop has no content, no conversations that a place of state could belong to, nothing that says which tools
    # are in programs, no tools that run alone, and tools whose agents ask are failures.
    absent = (*CONTENT, *STATE[1:], *SELECTION, runs_sequential_tools_alone, asks_approvals_for_nested_agents)
    return (check for face, check in without(*absent) if face is CODE_MODE)


@pytest.mark.parametrize("check", [*rows()], ids=contract_id)
def test_contract(check: Check) -> None:
    asyncio.run(asyncio.wait_for(check(Plugin()), WAIT_SECONDS))


FOLDER = Path(tinyloop.__file__).parent


def test_the_core_finds_its_adapter() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["codemode.adapters"]["tinyloop"].partition(":")
    known: list[Any] = []
    getattr(import_module(module), name)(lambda *pair: known.append(pair))
    ((is_one, made),) = known
    tool = tinyloop.Tool(name="double", description="", parameters={}, function=lambda n: 2 * n)
    assert (is_one(tool), is_one(3), made) == (True, False, convert)
    program = {"js": "return await tools.double({ n: 2 });"}
    assert asyncio.run(codemode.create_code_mode_tool([made(tool)]).execute(program)) == 4


@pytest.mark.full  # the seconds of an environment for building
def test_it_is_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(FOLDER)]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    if built.returncode and "hatchling" in built.stderr:
        missing("index", "pip reaches no package index")
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as packed:
        assert {"codemode_tinyloop.py", "tinyloop.py"} <= set(packed.namelist())
