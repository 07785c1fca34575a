"""Two hosts in two processes on one database: whatever they do at once, and whenever one is killed."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from postgres_cluster import new_database
from suite import full_only, rounds
from waiting import within

from codemode.stores import ALL_TENANTS, PostgresInterruptStore, SqliteInterruptStore, verify_audit
from codemode.stores.records import ENDED_STATES, RECORD_TRANSITIONS

SUPPORT = Path(__file__).parents[2] / "support"
NAMES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True)
CLAIM = st.tuples(st.just("claim"), st.just(()))
DECIDE = st.tuples(st.just("decide"), st.tuples(NAMES, st.sampled_from(["ana", "bob"])))
SETTLE = st.tuples(st.just("settle"), st.tuples(st.one_of(st.none(), st.lists(st.sampled_from("xy"), unique=True))))
COMMANDS = st.one_of(
    st.tuples(st.just("put"), st.tuples(NAMES)),
    DECIDE,
    DECIDE,
    CLAIM,
    CLAIM,
    CLAIM,
    SETTLE,
    SETTLE,
    st.tuples(st.just("take"), st.tuples(st.integers(0, 1))),
    st.tuples(st.sampled_from(["release", "renew", "sweep", "rest", "rest"]), st.just(())),
)
STEPS = st.lists(
    st.tuples(COMMANDS, COMMANDS, st.sampled_from([0, 0, 0, 31_000, 3_700_000]), st.sampled_from([False] * 5 + [True])),
    min_size=6,
    max_size=25,
)
BEGIN = [
    (("put", [["a", "b", "c"]]), ("put", [["d", "e"]]), 0, False),
    (("decide", [["a", "d"], "ana"]), ("decide", [["d", "a"], "bob"]), 0, False),
]
# The first host is killed with its leases; what was decided meanwhile is for whoever comes after the takeover.
TAKEN_OVER = [
    (("claim", []), ("claim", []), 0, False),
    (("renew", []), ("decide", [["b", "e"], "bob"]), 0, True),
    (("claim", []), ("claim", []), 31_000, False),
    (("settle", [None]), ("settle", [["x"]]), 0, False),
    (("claim", []), ("claim", []), 0, False),
    (("settle", [None]), ("settle", [[]]), 0, False),
]
# The first host comes back after its leases are over, and goes on as if nothing had been.
STOOD_STILL = [
    (("claim", []), ("renew", []), 0, False),
    (("claim", []), ("renew", []), 0, False),
    (("put", [["f"]]), ("claim", []), 31_000, False),
    (("put", [["f"]]), ("claim", []), 0, False),
    (("settle", [None]), ("renew", []), 0, False),
    (("settle", [["x"]]), ("settle", [None]), 0, False),
    (("renew", []), ("settle", [["y"]]), 0, False),
]
# What was resumed rests, its host is killed, and another one takes it over by its id; then it comes to ask again.
RESTED = [
    (("claim", []), ("renew", []), 0, False),
    (("rest", []), ("decide", [["b"], "bob"]), 0, False),
    (("rest", []), ("take", [0]), 0, True),
    (("take", [0]), ("take", [0]), 31_000, False),
    (("settle", [["x"]]), ("settle", [["x"]]), 0, False),
    (("claim", []), ("claim", []), 0, False),
    (("settle", [None]), ("settle", [None]), 0, False),
]
EVENTS = {
    "decided": "decide",
    "claimed": "claim",
    "paused": "pause",
    "rested": "rest",
    "released": "release",
    "completed": "complete",
    "lost": "lose",
    "expired": "expire",
}


class Process:
    def __init__(self) -> None:
        command = [sys.executable, str(SUPPORT / "store_host.py")]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=SUPPORT, bufsize=1
        )

    def send(self, name, moved_ms, arguments):
        self._child.stdin.write(json.dumps([name, moved_ms, arguments]) + "\n")
        self._child.stdin.flush()

    def said(self):
        line = self._child.stdout.readline()
        assert line, "the host died of itself"
        return json.loads(line)

    def end(self):
        self._child.kill()
        self._child.wait(60)
        self._child.stdin.close()
        self._child.stdout.close()


@contextmanager
def two_hosts(kind, where):
    hosts = [Process(), Process()]
    try:
        for host in hosts:
            host.send("open", 0, [kind, where])
            assert host.said() == ["did", None]
        yield hosts
    finally:
        for host in hosts:
            host.end()


def played(kind, where, steps):
    """Everything that was said, by command."""
    told, moved_ms = [], 0
    with two_hosts(kind, where) as hosts:
        for first, second, more_ms, is_killed in steps:
            moved_ms += more_ms
            for host, (name, arguments) in zip(hosts, (first, second), strict=True):
                host.send(name, moved_ms, arguments)
            if is_killed:  # in the middle of whatever it does
                hosts[0].end()
                hosts[0] = Process()
                hosts[0].send("open", moved_ms, [kind, where])
                assert hosts[0].said() == ["did", None]
            else:
                told.append((first[0], hosts[0].said()))
            told.append((second[0], hosts[1].said()))
    return told


async def kept(store):
    async with store:
        assert await verify_audit(store) is None
        changes, after = [], 0
        while found := await store._run_read(lambda session, after=after: _changes(session, after)):
            changes += found
            after = found[-1].sequence
        return [
            *(await store.list(tenant=ALL_TENANTS, limit=500)).records,
            *(await store.list(tenant=ALL_TENANTS, limit=500, state="resting")).records,
        ], changes


def _changes(session, after):
    from codemode.stores import queries

    return queries.list_changes(session, ALL_TENANTS, after)


def check(told, records, changes):
    decisions, settled, leases = {}, [], {}
    for name, (how, what) in told:
        if how == "refused":
            continue
        if name == "decide":
            for request, who in what.items():
                decisions.setdefault(request, set()).add(who)
        if name in ("claim", "take") and what is not None:
            record_id, number, is_takeover, resolutions = what
            assert (record_id, number) not in leases
            before = leases.get((record_id, number - 1))
            assert not is_takeover or before is None or (before if name == "claim" else {}) == resolutions
            leases[record_id, number] = resolutions
        if name == "settle" and what is not None and what[2]:
            settled += [(what[0], request) for request in what[3]]
        if name == "rest" and what is not None:
            settled += [(what[0], request) for request in what[1]]
    # A request may wait anew only under a record that ended: names are of one invocation as long as it lives.
    assert len(settled) == len(set(settled))
    assert all(len(who) == 1 for who in decisions.values())
    states = {}
    for one in changes:
        assert (one.record_id in states) == (one.kind != "put")
        states[one.record_id] = (
            "pending" if one.kind == "put" else RECORD_TRANSITIONS[states[one.record_id], EVENTS[one.kind]]
        )  # a KeyError is a change that the table does not know
    assert states == {one.id: one.state for one in records}
    for one in records:
        requests = {request.state for request in one.requests}
        assert one.state not in ENDED_STATES or requests <= {"applied", "superseded"}
        assert (one.outcome is not None) == (one.state in ENDED_STATES)


@pytest.mark.parametrize("kind", ["sqlite", *full_only("postgres")])
def test_any_interleaving_keeps_the_states_and_applies_no_decision_twice(kind, request, tmp_path):
    folder = request.getfixturevalue("postgres_folder") if kind == "postgres" else None

    @settings(
        max_examples=rounds(1, 4),
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(STEPS)
    @example(TAKEN_OVER)
    @example(STOOD_STILL)
    @example(RESTED)
    def scenario(steps):
        name = secrets.token_hex(6)
        where = new_database(folder, f"i{name}") if folder is not None else str(tmp_path / name)
        told = played(kind, where, [*BEGIN, *steps])
        store = PostgresInterruptStore(where) if folder is not None else SqliteInterruptStore(where)
        check(told, *within(kept(store)))

    scenario()
