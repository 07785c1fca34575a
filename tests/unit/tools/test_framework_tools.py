"""Tool objects of frameworks without an adapter are refused, and never read as functions of their `__call__`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from codemode import create_code_call_tools, create_code_mode_tool, create_exec_wait_tools


class Smol:
    """As smolagents has them."""

    name = "search"
    description = "Search."
    inputs = {"query": {"type": "string"}}  # noqa: RUF012

    def __call__(self, *args: Any, sanitize_inputs_outputs: bool = False, **kwargs: Any) -> Any:
        raise AssertionError("it was called")


class Llama:
    """As LlamaIndex has them."""

    metadata = SimpleNamespace(name="search", description="Search.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("it was called")


class Strands:
    """As Strands has them."""

    tool_name = "search"
    tool_spec = {"name": "search"}  # noqa: RUF012

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("it was called")


class Uncallable:
    """As CrewAI has them."""

    name = "search"
    description = "Search."


MAKERS = [create_code_mode_tool, create_code_call_tools, create_exec_wait_tools]


def test_each_is_refused_with_the_page_about_adapters():
    for kind in (Smol, Llama, Strands, Uncallable):
        for make in MAKERS:
            with pytest.raises(ValueError, match=r"PLUGIN\.md") as raised:
                make([kind()])
            assert kind.__qualname__ in str(raised.value), kind
            assert "sanitize" not in str(raised.value), kind


def test_a_name_in_a_mapping_changes_nothing():
    with pytest.raises(ValueError, match=r"PLUGIN\.md"):
        create_code_mode_tool({"search": Smol()})


def test_callable_objects_with_parameters_of_their_own_are_tools():
    class Search:
        name = "search"
        description = "Search."

        def __call__(self, query: str) -> str:
            return f"found {query}"

    class Anything:
        def __call__(self, **fields: Any) -> int:
            return len(fields)

    code_mode = create_code_mode_tool({"search": Search(), "anything": Anything()})
    js = "return [await tools.search({ query: 'a' }), await tools.anything({ a: 1, b: 2 })]"
    assert code_mode.execute_sync({"js": js}) == ["found a", 2]
