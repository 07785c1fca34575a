"""What of compiled patterns stays in the process: no more than so many bytes, whatever strangers write."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from suite import each_row

from codemode.data.sized_cache import SizedCache
from codemode.schemas import patterns
from codemode.schemas.patterns import MAX_COMPILED_BYTES, estimate_compiled_bytes

MEASURED = 59 << 10  # what the engine takes for one set of Unicode characters


@each_row(
    "pattern",
    [
        r"\w{40}",
        r"\W{40}",
        r"\pL{40}",
        r"\p{L}{40}",
        r"\P{Lu}{0,40}",
        r"[\w.-]{40}",
        r"[]\w]{40}",
        r"[^]\w]{40}",
        r"[\w\[]{40}",
        r"[\w&&[^_]]{40}",
        r"[^\W]{39,}",
        r"(?:\w){40}",
        r"(?i:\w{8}){5}",
        r"((?:a|\w{2}){4}){5}",
        "(?x)#[\n\\w{40}",
        "(?i-u:a)(?ix)#)\n(\\w{4}#(\n){10}",
        r"\w{40}" + "a" * 9000,
    ],
)
def test_what_is_repeated_counts_each_time_however_it_is_written(pattern: str):
    assert 40 * MEASURED <= estimate_compiled_bytes(pattern) <= MAX_COMPILED_BYTES


@each_row("pattern", ["", "\\", "[", "(", ")", "{", "{3}", "a{", "\\x", "[^", "x{0}", "[a{40}]"])
def test_what_is_small_or_nothing_at_all_counts_little(pattern: str):
    assert estimate_compiled_bytes(pattern) <= 16 << 10


def test_no_more_stays_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch):
    room = 4 << 20
    monkeypatch.setattr(patterns, "_compiled_patterns", SizedCache[Any, Any](room, max_entries=256))

    def alive() -> int:
        gc.collect()
        return sum(type(one).__name__ == "SchemaValidator" for one in gc.get_objects())

    before = alive()
    written = [rf"\w{{10}}-{number}" for number in range(12)]
    for one in written:
        assert patterns.compile_linear_matcher(one)(f"abcdefghij-{one.rpartition('-')[2]}")
    assert alive() - before <= room // (10 * MEASURED)
    assert patterns.compile_linear_matcher(written[0])("abcdefghij-0")  # made again


def test_the_text_of_a_huge_pattern_does_not_stay_either():
    known_sizes: Any = vars(patterns)["_cached_automaton_size"]
    known = known_sizes.cache_info().currsize
    for number in range(3):
        assert patterns.estimate_automaton_size(f"{number}" * 100_000) >= 100_000
    assert known_sizes.cache_info().currsize == known
