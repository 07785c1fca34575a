"""One store makes a surface durable: interrupt mode, guard, content, the key of the environment, and how long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codemode import (
    CodeModeOptions,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    set_continuation_signing_key,
)
from codemode.continuations.keys import SIGNING_KEY_VARIABLE, read_environment_keys
from codemode.stores import MemoryInterruptStore, MemoryResumeGuard, SqliteInterruptStore
from codemode.stores.durability import DEFAULT_STORED_MAX_AGE_MS, open_store, open_store_and_make_options_durable

KEY = "0f1d4c9e8b7a6352"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SIGNING_KEY_VARIABLE, raising=False)
    set_continuation_signing_key()
    yield
    set_continuation_signing_key()


def settings_of(surface: Any) -> CodeModeOptions:
    options = getattr(surface, "settings", None) or surface.options
    return getattr(options, "settings", options)


def test_every_surface_takes_a_store_and_gets_all_from_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(SIGNING_KEY_VARIABLE, KEY)
    url = f"sqlite:///{tmp_path}/pauses.db"
    for surface in (
        create_code_mode_tool([], store=url),
        create_code_call_tools([], store=url),
        create_modules_tool([], store=url),
        create_exec_wait_tools([], store=url),
    ):
        settings = settings_of(surface)
        assert isinstance(surface.store, SqliteInterruptStore), surface
        assert settings.continuation.guard is surface.store.guard, surface
        assert surface.store.guard.content_store is not None, surface
        assert settings.continuation.keys == (KEY.encode(),), surface
        assert settings.continuation.max_age_ms == DEFAULT_STORED_MAX_AGE_MS, surface
        assert settings.approval.mode == "interrupt", surface
    assert not (tmp_path / "pauses.db").exists()


def test_a_missing_key_is_reported_with_its_name_and_how_to_make_one(tmp_path: Path):
    for create in (create_code_mode_tool, create_code_call_tools, create_modules_tool, create_exec_wait_tools):
        with pytest.raises(ValueError, match=rf"{SIGNING_KEY_VARIABLE} to the output of python -c .*secrets"):
            create([], store=f"sqlite:///{tmp_path}/pauses.db")


def test_the_key_of_the_options_or_of_the_process_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(SIGNING_KEY_VARIABLE, KEY)
    given = CodeModeOptions(continuation={"keys": "another key of this test"})
    assert open_store_and_make_options_durable(given, tmp_path / "a")[0].continuation.keys == (
        b"another key of this test",
    )
    set_continuation_signing_key("the key of this process", max_age_ms=5_000)
    continuation = open_store_and_make_options_durable(CodeModeOptions(), tmp_path / "a")[0].continuation
    assert (continuation.keys, continuation.max_age_ms) == (None, None)


def test_what_the_options_say_of_approvals_and_age_stays(tmp_path: Path):
    given = CodeModeOptions(approval={"mode": "callback"}, continuation={"keys": KEY, "max_age_ms": 7})
    settings, _ = open_store_and_make_options_durable(given, tmp_path / "a")
    assert (settings.approval.mode, settings.continuation.max_age_ms) == ("callback", 7)
    asking = CodeModeOptions(approval={"on_approval_required": lambda _: True}, continuation={"keys": KEY})
    assert open_store_and_make_options_durable(asking, tmp_path / "a")[0].approval.mode == "callback"


def test_a_store_in_memory_needs_no_key_and_an_open_one_stays_as_it_is():
    store = MemoryInterruptStore()
    code_mode = create_code_mode_tool([], store=store)
    assert code_mode.store is store
    assert code_mode.options.continuation.keys is None
    assert open_store_and_make_options_durable(code_mode.options, store)[1] is store  # and again


def test_another_guard_than_that_of_the_store_is_refused():
    with pytest.raises(ValueError, match=r"continuation\.guard is not the guard of the store"):
        create_code_mode_tool([], {"continuation": {"guard": MemoryResumeGuard()}}, store=MemoryInterruptStore())


def test_what_names_no_store_is_refused_without_its_password(tmp_path: Path):
    for wrong in ("mysql://ana:secret@host/db", "sqlite://pauses.db", "sqlite:///", "sqlite:///a?mode=ro", "", "db:x"):
        with pytest.raises(ValueError, match=r"is not a database: use sqlite:///pauses\.db, or postgresql://") as said:
            open_store(wrong)
        assert "secret" not in str(said.value), wrong
    with pytest.raises(ValueError, match=r"missing folder .*absent"):
        open_store(tmp_path / "absent" / "pauses.db")
    for wrong in (5, object(), MemoryInterruptStore().guard):
        with pytest.raises(ValueError, match="store must be a store of interrupts or a URL"):
            open_store(wrong)  # pyright: ignore[reportArgumentType]
    for path in (tmp_path / "a", f"{tmp_path}/a", f"sqlite:///{tmp_path}/a"):
        assert isinstance(open_store(path), SqliteInterruptStore), path


def test_the_environment_has_one_key_or_several(monkeypatch: pytest.MonkeyPatch):
    for text, keys in ((KEY, [KEY]), (f'["{KEY}", "b{KEY}"]', [KEY, "b" + KEY]), ("[not json", ["[not json"])):
        monkeypatch.setenv(SIGNING_KEY_VARIABLE, text)
        assert read_environment_keys() == tuple(key.encode() for key in keys), text
    for text in ("[]", "[1]", '[""]'):
        monkeypatch.setenv(SIGNING_KEY_VARIABLE, text)
        with pytest.raises(ValueError, match=f"{SIGNING_KEY_VARIABLE} is an array, and not one of keys"):
            read_environment_keys()
