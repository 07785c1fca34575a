"""Which of the two suites runs: the default one, in minutes, or all of it (`make test-full`, CODEMODE_FULL=1)."""

from __future__ import annotations

import functools
import inspect
import os
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
    names: str, table: Iterable[Any], *, ids: Iterable[str] | Callable[[Any], object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let one test go through a table whose rows `pytest.mark.parametrize` would make a test each.

    A failure names its row, by ``ids`` where they are given. All rows share the fixtures of the one test; what is
    `full_only` is left to the full suite.
    """
    keys = [name.strip() for name in names.split(",")]
    table = table if ids is None else _with_ids(table, len(keys), ids)
    rows = [_named(row, len(keys)) for row in table if IS_FULL or not _is_full_only(row)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def go_through(**fixtures: Any) -> None:
            for name, values in rows:
                try:
                    test(**fixtures, **dict(zip(keys, values, strict=True)))
                except BaseException as error:
                    error.add_note(f"in the row {name}")
                    raise

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in keys]
        go_through.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return go_through

    return decorate


def _with_ids(table: Iterable[Any], width: int, ids: Iterable[str] | Callable[[Any], object]) -> list[Any]:
    rows = [*table]
    names = [*map(ids, rows)] if callable(ids) else [*ids]
    marks = [row.marks if isinstance(row, _PARAM) else () for row in rows]
    given = zip(rows, names, marks, strict=True)
    return [pytest.param(*_named(row, width)[1], id=str(name), marks=mark) for row, name, mark in given]


def _is_full_only(row: Any) -> bool:
    return isinstance(row, _PARAM) and any(mark.name == "full" for mark in row.marks)


def _named(row: Any, width: int) -> tuple[str, tuple[Any, ...]]:
    if isinstance(row, _PARAM):
        return row.id or f"{row.values!r:.300}", row.values
    return f"{row!r:.300}", (row,) if width == 1 else tuple(row)
