"""An index made from an earlier one answers as if it were made afresh, and the earlier one goes on answering."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_tool import PlainTool
from suite import rounds

from codemode.tools.search import postings
from codemode.tools.search.index import ToolIndex
from codemode.tools.search.postings import Postings, to_named_tool_list

WORDS = [
    "read",
    "reads",
    "file",
    "files",
    "order",
    "ordre",
    "walrus",
    "delete",
    "创建文件",
    "pull request",
    "the",
    "url",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
TOOLS = st.builds(
    PlainTool,
    st.sampled_from(["read_file", "readFile", "order", "walrus", "t", ""]),
    TEXTS.map(lambda text: f"{text}. {text[::-1]}"),
    st.sampled_from([None, {"properties": {"url": {"description": "of a file"}}}]),
    st.none(),
    st.lists(TEXTS, max_size=1).map(tuple),
)
QUERIES = [*WORDS, "raed file", "walru", "delete the order", "wal", "https://a.example/b", "read_file", "文件"]


def pairs(tools: list[PlainTool]) -> list[tuple[str, PlainTool]]:
    return [(tool.name, tool) for tool in tools]


def answers(index: ToolIndex) -> list[object]:
    return [index.search(query, limit) for query in QUERIES for limit in (1, 50)]


@settings(max_examples=rounds(20, 150), deadline=None)
@given(st.lists(TOOLS, min_size=3, max_size=8, unique_by=id), st.data())
def test_what_is_updated_answers_like_what_is_made_afresh(stock, data):
    """Added, removed, changed, moved, the same twice, and equal ones made again; asked or not asked in between."""
    again = st.sampled_from(stock).map(replace)
    versions = data.draw(st.lists(st.lists(st.sampled_from(stock) | again, max_size=8), min_size=2, max_size=5))
    index = ToolIndex(pairs(versions[0]))
    for before, tools in itertools.pairwise(versions):
        if data.draw(st.booleans()):
            index.build_index()
        new = index.with_tools(pairs(tools))
        assert answers(new) == answers(ToolIndex(pairs(tools)))
        assert answers(index) == answers(ToolIndex(pairs(before)))
        index = new


def test_only_what_changed_is_indexed_again(monkeypatch):
    tools = [PlainTool(f"tool{n}", f"Number {n}.") for n in range(20)]
    indexed: Counter[str] = Counter()
    real = postings.create_index_entry
    monkeypatch.setattr(postings, "create_index_entry", lambda columns: indexed.update([columns.name]) or real(columns))
    index = ToolIndex(pairs(tools))
    index.build_index()
    assert (len(indexed), indexed.total()) == (20, 20)
    indexed.clear()
    equal = [replace(tool) for tool in tools]
    changed = [replace(equal[3], description="Walrus."), *equal[4:], PlainTool("new"), *equal[:2]]
    new = index.with_tools(pairs(changed))
    new.build_index()
    assert set(indexed) == {"tool3", "new"}
    assert [one.position for one in new.search("walrus", 5)] == [0]
    assert index.search("walrus", 5) == []


def test_an_example_that_a_surface_is_told_of_belongs_to_what_is_indexed():
    class Told(PlainTool):
        metadata: object = None

    tools = [Told("t"), Told("u")]
    object.__setattr__(
        tools[1], "metadata", {"codecall": {"examples": [{"description": "Feed it", "input": {"a": "walrus"}}]}}
    )
    index = ToolIndex(pairs(tools))  # fmt: skip
    assert [one.position for one in index.search("walrus", 5)] == [1]
    assert [one.position for one in index.search("feed", 5)] == [1]


def test_earlier_versions_are_let_go_of():
    tools = [PlainTool(f"tool{n}", "Same.") for n in range(5)]
    index = ToolIndex(pairs(tools))
    index.build_index()
    earlier = []
    for n in range(20):
        earlier.append(weakref.ref(index))
        index = index.with_tools(pairs([*tools, PlainTool(f"new{n}")]))
        if n % 3 == 0:
            index.build_index()
    gc.collect()
    assert [one() for one in earlier] == [None] * 20
    assert [one.position for one in index.search("new19", 1)] == [5]


def test_nothing_of_tools_that_are_gone_is_kept():
    made = Postings(to_named_tool_list(pairs([PlainTool("stays", "A walrus.")])))
    sizes: list[dict[str, int]] = []
    for n in range(6):
        gone = PlainTool(f"gone{n}", f"Orders number{n}.", {"properties": {"n": {}}})
        tools = [PlainTool("stays", "A walrus."), gone]
        made = Postings(to_named_tool_list(pairs(tools)), made)
        kept = {**vars(made), "known_words": vars(made.known_words)["_counts"]}
        sizes.append({name: len(one) for name, one in kept.items()})
    assert sizes == sizes[:1] * 6
    assert sizes[0]["slots_by_plain_name"] == 2


def test_updates_during_searches_from_several_threads_tear_no_answer():
    count, updates, threads = 2000, 30, 4
    tools = [PlainTool(f"tool{n}", "A walrus of version 0.") for n in range(count)]
    current = [ToolIndex(pairs(tools))]
    torn: list[object] = []
    done = threading.Event()

    def search() -> None:
        while not done.is_set():
            index = current[0]
            found = index.search("walrus", 50)
            if [one.position for one in found] != list(range(50)) or len({one.score for one in found}) != 1:
                torn.append(found)
            if found != index.search("walrus", 50):
                torn.append("another answer")

    searching = [threading.Thread(target=search) for _ in range(threads)]
    for thread in searching:
        thread.start()
    for version in range(1, updates + 1):
        changed = range(version * 7, version * 7 + 50)
        for n in changed:
            tools[n % count] = PlainTool(f"tool{n % count}", f"A walrus of version {version}.")
        current[0] = current[0].with_tools(pairs(tools))
        current[0].build_index()
    done.set()
    for thread in searching:
        thread.join(60)
        assert not thread.is_alive()
    assert torn == []
    assert current[0].search("walrus", 50) == ToolIndex(pairs(tools)).search("walrus", 50)


@pytest.mark.full
def test_the_garbage_collector_has_nothing_to_go_through_for_each_tool():
    tools = [
        PlainTool(f"tool{n}", "Reads a file. Then a walrus.", input_examples=({"url": "of a file"},))
        for n in range(1000)
    ]
    current = ToolIndex(pairs(tools[:3]))
    current.search("file", 8)

    def tracked() -> int:
        for _ in range(3):  # a tuple of tuples is let go after those in it
            gc.collect()
        # From Python 3.14 on every dict is gone through, also one of texts and numbers, of which each tool has one.
        skipped = dict if sys.version_info >= (3, 14) else ()
        return sum(not isinstance(one, skipped) for one in gc.get_objects())

    gc.collect()
    gc.freeze()  # what other tests imported is none of this, and is gone through for seconds
    before = tracked()
    indexes = [current := current.with_tools(pairs(tools[n:])) for n in (0, 1, 2)]
    assert all(index.search("walrus", 8) for index in indexes)
    assert tracked() - before < len(tools) / 4
