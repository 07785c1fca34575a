"""``store=`` makes programs of every LangChain surface durable: guard, key and content of one store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware, create_code_mode_tool
from langchain_core.tools import tool

from codemode.continuations import keys
from codemode.stores import MemoryInterruptStore, SqliteInterruptStore

KEY = "a key that all processes share"


@tool
def refund(order: str) -> str:
    """Give the money for an order back."""
    return f"refunded {order}"


def test_every_surface_takes_the_url_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEMODE_SIGNING_KEY", KEY)
    url = f"sqlite:///{tmp_path}/pauses.db"
    made: Any = create_code_mode_tool([refund], approve={"refund": True}, store=url)
    for continuation in (
        CodeModeMiddleware(store=url)._options.continuation,
        CodeCallMiddleware(store=url)._empty_toolset.options.settings.continuation,
        made._surface.core.options.continuation,
    ):
        assert type(continuation.guard) is type(SqliteInterruptStore(tmp_path / "other").guard)
        assert continuation.keys == (KEY.encode(),)
    kept = ExecWaitMiddleware(store=url)._config._create_options["store"]
    assert isinstance(kept, SqliteInterruptStore)


def test_an_open_store_is_the_one_whose_guard_is_used_and_a_missing_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CODEMODE_SIGNING_KEY", raising=False)
    monkeypatch.setattr(keys, "_configured_keys", None)
    store = MemoryInterruptStore()
    assert CodeModeMiddleware(store=store)._options.continuation.guard is store.guard
    with pytest.raises(ValueError, match="CODEMODE_SIGNING_KEY"):
        CodeModeMiddleware(store=tmp_path / "pauses.db")
