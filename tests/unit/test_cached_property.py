"""The package's `cached_property` keeps what that of Python keeps, holds no lock, and is the only one there is."""

from __future__ import annotations

import ast
import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_children import in_a_child
from waiting import until, within

from codemode.cached_property import cached_property
from codemode.data.content import MediaContent
from codemode.host import steps, threads
from codemode.host.threads import HostThreads, InvocationThreads
from codemode.schemas.compiled import ValidatedInput

TREE = Path(__file__).parents[2]
ROOT = TREE / "src" / "codemode"
# It runs in workers, which have one thread, and imports nothing of the package.
GUEST = ROOT / "guest"
SOURCES = [
    path
    for folder in [ROOT, *(TREE / "integrations").glob("*/src")]
    for path in sorted(folder.rglob("*.py"))
    if GUEST not in path.parents and path != ROOT / "cached_property.py"
]


NAMED = re.compile(r"cached_property|functools\s+import\s.*\*")


def of_functools(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield where Python's own is named, however it was imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "functools":
            yield from (alias for alias in node.names if alias.name in ("cached_property", "*"))
        elif isinstance(node, ast.Attribute) and node.attr == "cached_property":
            yield node


@pytest.mark.parametrize(
    "text",
    [
        "from functools import partial, cached_property as kept",
        "import functools as f\nclass A:\n    @f.cached_property\n    def a(self): ...",
        "def late():\n    from functools import cached_property",
    ],
)
def test_that_of_python_is_found_in_a_source(text: str):
    assert len([*of_functools(ast.parse(text))]) == 1


def test_no_source_uses_that_of_python():
    assert len(SOURCES) > 300
    named = {str(path): text for path in SOURCES if NAMED.search(text := path.read_text(encoding="utf-8"))}
    used = [path for path, text in named.items() for _ in of_functools(ast.parse(text))]
    assert used == [], "of functools it holds a lock while it computes: import that of codemode.cached_property"


class Thing:
    def __init__(self) -> None:
        self.computed = 0

    @cached_property
    def value(self) -> list[int]:
        """What it is."""
        self.computed += 1
        return [self.computed]

    @cached_property
    def failing(self) -> int:
        self.computed += 1
        raise ValueError(self.computed)


@dataclass(frozen=True)
class Frozen(Thing):
    computed: Any = None

    @cached_property
    def own(self) -> object:
        return object()


class Mapped(dict[str, int]):
    @cached_property
    def own(self) -> object:
        return object()


def test_it_is_computed_once_and_kept_where_that_of_python_keeps_it():
    one, other = Thing(), Thing()
    assert one.value is one.value
    assert one.value is not other.value
    assert (one.computed, vars(one)["value"]) == (1, [1])
    del one.value
    assert one.value == [2]
    one.value = [7]
    assert one.value == [7]
    described: Any = Thing.value
    assert described.__doc__ == "What it is."


@pytest.mark.parametrize("make", [Frozen, Mapped])
def test_frozen_objects_and_mappings_keep_it_too(make: Callable[[], Any]):
    one = make()
    assert one.own is one.own
    assert one.own is not make().own
    assert not isinstance(one, dict) or dict(one) == {}


def test_where_there_is_no_room_for_it_it_is_refused():
    class Slotted:
        __slots__ = ()

        @cached_property
        def own(self) -> int:
            return 1

    with pytest.raises(AttributeError, match="__dict__"):
        _ = Slotted().own


def test_what_fails_is_computed_again():
    one = Thing()
    for count in (1, 2):
        with pytest.raises(ValueError, match=str(count)):
            _ = one.failing
    assert "failing" not in vars(one)


@pytest.mark.parametrize("is_same", [True, False])
def test_threads_compute_at_once_and_get_what_was_done_first(is_same: bool):
    meeting = threading.Barrier(2)

    class Meeting:
        @cached_property
        def place(self) -> object:
            meeting.wait(60)  # both are inside: one that had to wait for the other would never come
            return object()

    first = Meeting()
    second = first if is_same else Meeting()
    with ThreadPoolExecutor(2) as threads:
        found = [*threads.map(lambda one: one.place, [first, second])]
    assert (found[0] is found[1]) == is_same
    assert [first.place, second.place] == found


def test_what_was_written_meanwhile_stays():
    class Told:
        @cached_property
        def value(self) -> int:
            self.value = 2
            return 1

    one = Told()
    assert (one.value, one.value) == (2, 2)


def _input(work: Callable[[], object]) -> Any:
    return ValidatedInput({}, work)


class _Part(MediaContent):
    """One whose bytes are looked at in steps of the test."""

    @property
    def comparison_key(self) -> Any:
        self.work()
        return super().comparison_key


def _part(work: Callable[[], object]) -> Any:
    made: Any = _Part(b"", "image/png")
    object.__setattr__(made, "work", work)
    return made


@pytest.mark.parametrize(("make", "name"), [(_input, "json_value"), (_part, "id")])
def test_a_check_hands_on_its_turn_while_it_computes_to_one_that_computes_the_same(
    make: Callable[[Callable[[], object]], Any], name: str, monkeypatch: pytest.MonkeyPatch
):
    """The first has the turn and takes steps until the second, of another tenant, has computed the like."""
    monkeypatch.setattr(threads, "_MAX_TURN_SECONDS", 0.0)
    begun, done = threading.Event(), threading.Event()

    def long() -> str:
        begun.set()
        while not done.is_set():
            steps.count_steps(steps.TURN_STEPS + 1)
        return "long"

    async def scenario() -> list[Any]:
        first = asyncio.ensure_future(_checked(lambda: getattr(make(long), name)))
        await until(begun.is_set)
        return [await _checked(lambda: getattr(make(done.set), name)), await first]

    assert len(within(scenario(), 30)) == 2


async def _checked(work: Callable[[], Any]) -> Any:
    return await InvocationThreads(HostThreads()).run_cpu_bound(work)


@pytest.mark.parametrize("is_same", [True, False])
def test_a_child_computes_what_its_parent_was_in_the_middle_of(is_same: bool):
    inside, release = threading.Event(), threading.Event()

    class Held:
        @cached_property
        def value(self) -> int:
            if threading.current_thread() is thread:
                inside.set()
                release.wait(60)
            return 1

    one = Held()
    thread = threading.Thread(target=lambda: one.value)
    thread.start()
    assert inside.wait(60)

    def compute() -> None:
        assert (one if is_same else Held()).value == 1

    try:
        in_a_child(compute)
    finally:
        release.set()
        thread.join(60)
