"""Threads whose process is killed at any moment go on when they are invoked again: guard and journal on their database.

A person is asked about calls of unknown outcome alone, and what finished calls wrote into the state is not lost.
"""

from __future__ import annotations

import json
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from forked_hosts import ForkedHosts
from postgres_cluster import cluster, new_database
from required import missing
from suite import full_only

MOST_KILL_MS, SOON_MS = 300, 10
FIRST, TOGETHER, LAST = ["a0", "a1", "a2", "a3"], ["b0", "refund a", "ask because"], ["c0", "c1", "c2"]
EFFECTS = [*FIRST, *TOGETHER, *LAST]
VALUE = [*FIRST, "b0", "refunded a", "because", *LAST]
NOTED = [*FIRST, "b0", *LAST]


@pytest.fixture(scope="module")
def hosts() -> Iterator[ForkedHosts]:
    with ForkedHosts("killed_thread", Path(__file__).parent) as forked:
        yield forked


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if find_spec("langgraph.checkpoint.postgres") is None:
        missing("postgres", "langgraph-checkpoint-postgres is not installed")
    with cluster() as folder:
        yield folder


class Thread:
    """One thread, and the hosts that run it one after the other."""

    def __init__(self, hosts: ForkedHosts, folder: Path, **given: Any) -> None:
        self.hosts, self.folder = hosts, folder
        self.given = {"folder": str(folder), "is_journaled": True, "face": "mode", **given}
        self.number = 0
        self.killed_after: list[int] = []

    def lines(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    def host(self, kill_after_ms: float | None, *, after: int = 0) -> Any:
        own = {"number": self.number, "kill_after_ms": kill_after_ms, "after": after}
        ended = self.hosts.run({**self.given, **own})
        self.number += 1
        if ended.is_killed:
            self.killed_after.append(len(self.lines("effects")))
        return ended.value

    def to_its_end(self, chance: random.Random, kills: int) -> Any:
        # The first is killed before it has come to its end, however fast it is; a later one may be done before.
        self.host(chance.uniform(0, SOON_MS), after=chance.randint(1, 4))
        for _ in range(kills - 1):
            if (value := self.host(chance.uniform(0, MOST_KILL_MS))) is not None:
                return value
        return self.host(None)


def check(thread: Thread, value: Any) -> None:
    told = f"killed after {thread.killed_after} effects: {thread.lines('effects')}"
    assert Counter(thread.lines("effects")) == Counter(EFFECTS), told
    content = json.loads(value["content"])
    assert value["status"] == "success", value
    assert (content if isinstance(content, list) else content["result"]) == VALUE, told
    # Of a call of which a person said what it gave, nobody knows what it wrote.
    assert sorted(value["noted"]) == sorted(set(NOTED) - set(thread.lines("told"))), told
    asked = [json.loads(line) for line in thread.lines("asked")]
    for _, question, done in asked:
        if question != "why" and question["type"] == "unknown_outcome":
            assert not after(question) & set(done), (question, told)
    approvals = {key for key, question, _ in asked if question != "why" and question["type"] == "tool_approval"}
    assert len(approvals) == 1, asked


def after(question: Any) -> set[str]:
    """What can only have been done when the call that is asked about had finished."""
    key = question["args"].get("key", "b0")
    return set(EFFECTS[EFFECTS.index(key) + 1 :]) - set(TOGETHER if key == "b0" else ())


@pytest.mark.full
@pytest.mark.parametrize(("mode", "face"), [("async", "mode"), *full_only(("sync", "mode"), ("async", "call"))])
def test_sqlite(hosts: ForkedHosts, tmp_path: Path, mode: str, face: str) -> None:
    where = str(tmp_path / "checkpoints.sqlite")
    thread = Thread(hosts, tmp_path, kind="sqlite", where=where, mode=mode, face=face)
    check(thread, thread.to_its_end(random.Random(f"{mode} {face}"), kills=2))
    assert thread.killed_after


@pytest.mark.full
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_postgres(hosts: ForkedHosts, postgres: str, tmp_path: Path, mode: str) -> None:
    where = new_database(postgres, f"t{secrets.token_hex(6)}")
    thread = Thread(hosts, tmp_path, kind="postgres", where=where, mode=mode)
    check(thread, thread.to_its_end(random.Random(f"postgres {mode}"), kills=2))
    assert thread.killed_after
