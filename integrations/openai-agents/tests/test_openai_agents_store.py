"""``store=`` makes programs of the plugin durable: guard, key and content of one store."""

from __future__ import annotations

from pathlib import Path

import pytest
from agents import Agent
from codemode_openai_agents import code_mode, with_code_mode
from codemode_openai_agents.tool import make_agent_options

from codemode.continuations import keys
from codemode.stores import MemoryInterruptStore, SqliteInterruptStore

KEY = "a key that all processes share"


def test_a_store_is_guard_and_the_environment_has_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEMODE_SIGNING_KEY", KEY)
    store = SqliteInterruptStore(tmp_path / "pauses.db")
    continuation = make_agent_options(None, None, None, None, store).continuation
    assert (continuation.guard, continuation.keys) == (store.guard, (KEY.encode(),))


def test_the_one_liners_take_a_store_and_name_a_missing_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEMODE_SIGNING_KEY", raising=False)
    monkeypatch.setattr(keys, "_configured_keys", None)
    code_mode([], store=MemoryInterruptStore())
    with_code_mode(Agent(name="Desk"), store=MemoryInterruptStore())
    for create in (lambda url: code_mode([], store=url), lambda url: with_code_mode(Agent(name="Desk"), store=url)):
        with pytest.raises(ValueError, match="CODEMODE_SIGNING_KEY"):
            create(f"sqlite:///{tmp_path}/pauses.db")
