"""The cache of values that strangers may make large: bounded in number, in size and for each, whatever happens."""

from __future__ import annotations

import threading
from typing import Any

from forked_children import held_elsewhere, in_a_child
from hypothesis import given
from hypothesis import strategies as st

from codemode.data.sized_cache import SizedCache


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 8), st.integers(0, 6)), max_size=40),
    st.integers(1, 4),
    st.integers(5, 15),
)
def test_the_bounds_hold_whatever_happens(steps: list[tuple[bool, int, int]], entries: int, size: int):
    cache: Any = SizedCache[Any, Any](size, max_entries=entries, max_entry_size=5)
    for is_put, key, length in steps:
        if is_put:
            cache.put(key, "x" * length, length)
            if length <= 5:
                assert cache.get(key) == "x" * length
        else:
            cache.get(key)
        kept = list(cache._entries.values())
        assert len(cache) == len(kept) <= entries
        assert cache._size == sum(one for _, one in kept) <= size


def test_a_forked_child_begins_with_nothing_and_may_use_it():
    cache: Any = SizedCache[Any, Any](10, max_entries=10)
    cache.put("a", 1, 10)

    def use() -> None:
        assert cache.get("a") is None
        cache.put("b", 2, 10)
        assert cache.get("b") == 2

    with held_elsewhere([cache._lock]):
        in_a_child(use)
    assert cache.get("a") == 1


def test_threads_may_share_it():
    cache: Any = SizedCache[Any, Any](100, max_entries=8)

    def work(offset: int) -> None:
        for number in range(500):
            cache.put(str((number + offset) % 20), number, number % 20)
            cache.get(str(number % 20))

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert cache._size == sum(size for _, size in cache._entries.values()) <= 100
