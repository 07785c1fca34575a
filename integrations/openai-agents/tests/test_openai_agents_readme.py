"""What the README shows works, with a scripted model in place of the one that it names."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from agents import set_trace_processors
from agents.models.multi_provider import MultiProvider
from scripted_model import Script

README = "".join((Path(__file__).parents[1] / page).read_text(encoding="utf-8") for page in ("README.md", "GUIDE.md"))
_BLOCK = re.compile(r"^<!-- model: ([^\n]*) -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS: list[tuple[str, str]] = _BLOCK.findall(README)


@pytest.mark.parametrize(("turns", "block"), BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_runs(turns: str, block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    script, asked = Script(*json.loads(turns)), []

    def get_model(_provider: Any, name: str) -> Script:
        asked.append(name)
        return script

    monkeypatch.setattr(MultiProvider, "get_model", get_model)
    monkeypatch.setattr("codemode.set_continuation_signing_key", lambda _key: None)  # it would hold for all tests
    monkeypatch.setenv("CODEMODE_SIGNING_KEY", "a key that ends with the block")
    set_trace_processors([])
    loop = asyncio.new_event_loop()  # which `Runner.run_sync` takes, and would leave open if it were its own
    asyncio.set_event_loop(loop)
    try:
        run_block(block)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert set(asked) == {"gpt-5.2"}
    assert script.turns == []


def run_block(block: str) -> None:
    exec(compile(block, "README", "exec", dont_inherit=True), {"__name__": "readme"})


def test_every_block_has_a_model() -> None:
    assert len(BLOCKS) == README.count("```python\n") == 5
