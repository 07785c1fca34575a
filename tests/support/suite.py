"""Which of the two suites runs: the default one, in minutes, or all of it (`make test-full`, CODEMODE_FULL=1)."""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

IS_FULL = os.environ.get("CODEMODE_FULL") == "1"
_PARAM = type(pytest.param())


def rounds(usual: int, full: int) -> int:
    """Return how many examples, programs or repetitions a test takes."""
    return full if IS_FULL else usual


def full_only(*values: Any) -> list[Any]:
    """Return parameters of a test that only the full suite takes."""
    given: list[tuple[Any, ...]] = [one if isinstance(one, tuple) else (one,) for one in values]
    return [pytest.param(*one, marks=pytest.mark.full) for one in given]


def each_row(
    names: str, table: Iterable[Any], *, ids: Iterable[object] | Callable[[Any], object] = reprlib.repr
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run one test over all rows of a table; `pytest.mark.parametrize` would create one test for each.

    A failure names its row, by ``ids`` where they are given. All rows share the fixtures of the one test; what is
    `full_only` is left to the full suite.
    """
    keys = [name.strip() for name in names.split(",")]
    rows = [row if isinstance(row, _PARAM) else pytest.param(*((row,) if len(keys) == 1 else row)) for row in table]
    given_ids = ids if callable(ids) else [*ids]
    assert rows, "each_row needs at least one row"

    def name_of(place: int) -> object:
        row = rows[place]
        if callable(given_ids):
            return row.id or given_ids(row.values[0] if len(keys) == 1 else row.values)
        return given_ids[place]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        assert not inspect.iscoroutinefunction(test), "each_row does not support async tests"

        @functools.wraps(test)
        def go_through(**fixtures: Any) -> None:
            for place, row in enumerate(rows):
                if not IS_FULL and any(mark.name == "full" for mark in row.marks):
                    continue
                try:
                    test(**fixtures, **dict(zip(keys, row.values, strict=True)))
                except BaseException as error:
                    error.add_note(f"in row {place}: {name_of(place)}")
                    raise

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in keys]
        go_through.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return go_through

    return decorate
