"""Agents that a specification file makes: their programs, and what such a file must not hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall, CodeMode, ExecWait
from pydantic_ai import Agent
from scripted import Script, program

SPEC = """
model: test
capabilities:
  - CodeMode:
      keep: [clock]
      options:
        executionPolicy: {maxBridgeRequests: 3}
"""


def test_a_file_names_the_capability(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="pydantic-ai reads such files with pyyaml")
    file = tmp_path / "agent.yaml"
    file.write_text(SPEC, encoding="utf-8")
    agent: Agent[Any, Any] = Agent.from_file(file, custom_capability_types=[CodeMode])

    @agent.tool_plain
    def clock() -> str:
        return "noon"

    @agent.tool_plain
    def double(n: int) -> int:
        return 2 * n

    js = "let n = 1; for (let i = 0; i < 4; i += 1) n = await tools.double({ n }).catch(() => -n); return n"
    steps = Script(program(js), "done")
    assert asyncio.run(agent.run("go", model=steps.model)).output == "done"
    assert sorted(steps.tool_names) == ["clock", "codeMode"]
    assert steps.returned() == -8


@pytest.mark.parametrize("capability", ["CodeMode", "CodeCall", "ExecWait"])
def test_each_may_stand_without_settings(capability: str) -> None:
    kinds: list[Any] = [CodeMode, CodeCall, ExecWait]
    agent: Agent[Any, Any] = Agent.from_spec(
        {"model": "test", "capabilities": [capability]}, custom_capability_types=kinds
    )
    assert isinstance(agent, Agent)


@pytest.mark.parametrize("options", ["options", "settings"])
def test_a_file_holds_no_keys(options: str) -> None:
    given = {options: {"continuation": {"keys": "32 random bytes that all may read"}}}
    with pytest.raises(ValueError, match="must not be in a specification"):
        CodeCall.from_spec(**given)
