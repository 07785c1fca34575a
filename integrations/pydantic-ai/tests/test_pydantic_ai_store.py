"""``store=`` makes programs of every capability durable: guard, key and content of one store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from codemode_pydantic_ai import CodeCall, CodeMode, CodeModeToolset, ExecWait, create_code_mode_tool
from pydantic_ai.toolsets import FunctionToolset

from codemode.continuations import keys
from codemode.stores import MemoryInterruptStore, SqliteInterruptStore

KEY = "a key that all processes share"


def test_every_capability_takes_the_url_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEMODE_SIGNING_KEY", KEY)
    url = f"sqlite:///{tmp_path}/pauses.db"
    capabilities = CodeMode(store=url), CodeCall(store=url), ExecWait(store=url)
    faces = [one.surface for one in capabilities]
    faces.append(CodeModeToolset(FunctionToolset(), store=url).surface)
    for face in faces:
        assert face is not None
        continuation = face.settings.continuation
        assert type(continuation.guard) is type(SqliteInterruptStore(tmp_path / "other").guard)
        assert (continuation.keys, continuation.seal) == ((KEY.encode(),), True)
    create_code_mode_tool([], store=url)


def test_a_capability_is_copied_with_its_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CODEMODE_SIGNING_KEY", KEY)
    made: CodeMode[None] = CodeMode(store=tmp_path / "pauses.db")
    assert dataclasses.replace(made, max_retries=1).store is made.store


def test_an_open_store_is_the_one_whose_guard_is_used_and_a_missing_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CODEMODE_SIGNING_KEY", raising=False)
    monkeypatch.setattr(keys, "_configured_keys", None)
    store = MemoryInterruptStore()
    face = CodeMode(store=store).surface
    assert face is not None
    assert face.settings.continuation.guard is store.guard
    with pytest.raises(ValueError, match="CODEMODE_SIGNING_KEY"):
        CodeMode(store=tmp_path / "pauses.db")
