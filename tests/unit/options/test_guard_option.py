"""The guard of a store is taken for a guard, and the store itself is not, though methods of it have the same names."""

import pytest

from codemode import (
    CodeModeOptions,
    ContinuationOptions,
    create_code_call_tools,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.options.checked_fields import WrongTypeError
from codemode.stores import MemoryInterruptStore, SqliteInterruptStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return MemoryInterruptStore() if request.param == "memory" else SqliteInterruptStore(tmp_path / "pauses.sqlite")


@pytest.mark.parametrize(
    "made",
    [
        lambda guard: ContinuationOptions(guard=guard),
        lambda guard: CodeModeOptions(continuation={"guard": guard}),
        lambda guard: create_code_call_tools([], {"settings": {"continuation": {"guard": guard}}}),
        lambda guard: create_modules_tool([], settings={"continuation": {"guard": guard}}),
        lambda guard: create_exec_wait_tools([], settings={"continuation": {"guard": guard}}),
    ],
)
def test_a_store_in_the_place_of_its_guard_is_refused_when_options_are_made(store, made):
    with pytest.raises(ValueError, match=r"continuation\.guard must be the guard of the store.* store\.guard$"):
        made(store)
    made(store.guard)


def test_that_is_a_wrong_type_too(store):
    with pytest.raises(WrongTypeError):
        ContinuationOptions(guard=store)
