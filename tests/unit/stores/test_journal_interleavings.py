"""Two hosts in two processes on one journal: whatever they do at once, and whenever one is killed."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from postgres_cluster import new_database
from stored_pauses import Clock
from suite import IS_FULL, full_only
from test_store_interleavings import played
from waiting import within

from codemode.stores import PostgresInterruptStore, SqliteInterruptStore

OPEN, WRITE = ("open_journal", [True]), ("write_lines", [2])
COMMANDS = st.one_of(
    st.tuples(st.just("open_journal"), st.tuples(st.booleans())),
    st.tuples(st.just("write_lines"), st.tuples(st.integers(1, 3))),
    st.tuples(st.just("write_lines"), st.tuples(st.integers(1, 3))),
    st.tuples(st.just("end_journal"), st.tuples(st.booleans())),
    st.tuples(st.just("renew_journal"), st.just(())),
)
STEPS = st.lists(
    st.tuples(COMMANDS, COMMANDS, st.sampled_from([0, 0, 31_000]), st.sampled_from([False] * 5 + [True])),
    min_size=5,
    max_size=14,
)
TAKEN_OVER = [
    (OPEN, OPEN, 0, False),
    (WRITE, WRITE, 0, False),
    (WRITE, OPEN, 31_000, True),
    (OPEN, WRITE, 0, False),
    (WRITE, WRITE, 31_000, False),
    (OPEN, OPEN, 31_000, False),
    (WRITE, WRITE, 0, False),
    (("end_journal", [True]), ("end_journal", [False]), 0, False),
    (WRITE, WRITE, 0, False),
]
DAY_MS = 86_400_000


async def lines_of(store, clock):
    clock.moved_ms = DAY_MS
    async with store:
        return (await store.journal(tenant="acme", app="support").open("k", "h", again=True)).lines


def number_of(line):
    return int(line.partition(":")[0])


def check(told, steps, lines):
    kills = sum(is_killed for *_, is_killed in steps)
    written = [line for name, (_, said) in told if name == "write_lines" and said and said[1] for line in said[0]]
    refused = {line for name, (_, said) in told if name == "write_lines" and said and not said[1] for line in said[0]}
    assert len(set(lines)) == len(lines)
    assert set(written) <= set(lines)
    assert not refused & set(lines)
    # What a host wrote that was killed before it could say so: at most its last group.
    assert len(set(lines) - set(written)) <= 3 * kills
    assert [number_of(line) for line in lines] == sorted(number_of(line) for line in lines)
    taken = [said for name, (_, said) in told if name == "open_journal" and said and said[0]]
    assert len({number for number, *_ in taken}) == len(taken)
    for number, found, outcome in taken:
        assert found == [line for line in lines if number_of(line) < number]
        assert outcome is None


@pytest.mark.parametrize("kind", ["sqlite", *full_only("postgres")])
def test_in_any_interleaving_a_journal_is_written_by_one_owner_after_the_other(kind, request, tmp_path):
    folder = request.getfixturevalue("postgres_folder") if kind == "postgres" else None

    @settings(
        max_examples=2,
        deadline=None,
        phases=[Phase.explicit, *([Phase.generate] if IS_FULL else [])],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(STEPS)
    @example(TAKEN_OVER)
    def scenario(steps):
        name = secrets.token_hex(6)
        where = new_database(folder, f"j{name}") if folder is not None else str(tmp_path / name)
        told = played(kind, where, [(OPEN, OPEN, 0, False), *steps])
        of_kind, clock = PostgresInterruptStore if folder is not None else SqliteInterruptStore, Clock()
        check(told, steps, within(lines_of(of_kind(where, clock=clock), clock)))

    scenario()
