"""A journal whose lines were deleted in the database is refused: finished calls would be made again."""

from __future__ import annotations

import pytest
from stored_pauses import Clock
from waiting import within

from codemode import CodeModeProtocolError
from codemode.stores import MemoryInterruptStore, SqliteInterruptStore, tables


def through(make, scenario):
    async def run():
        async with make() as store:
            return await scenario(store)

    return within(run())


def journal_of(store):
    return store.journal(tenant="acme", app="support")


async def execute(store, statement):
    await store._run_write(lambda session: session.run(statement))


async def written(store, *groups, key="k"):
    journal = journal_of(store)
    opened = await journal.open(key, "head")
    for group in groups:
        assert await journal.write(opened, group)
    return journal, opened


async def refused(store, key="k"):
    for _ in range(2):  # nothing was taken by the attempt before
        with pytest.raises(CodeModeProtocolError, match="groups of lines that were written are missing") as error:
            await journal_of(store).open(key, "head", again=True)
        assert error.value.details["origin"] == "journal"


CUTS = {
    "all lines": "DELETE FROM codemode_journal_lines",
    "the last line": (
        "DELETE FROM codemode_journal_lines WHERE ordinal = (SELECT max(ordinal) FROM codemode_journal_lines)"
    ),
    "a line in the middle": "DELETE FROM codemode_journal_lines WHERE texts = '=b'",
}


@pytest.mark.parametrize("name", CUTS)
def test_a_journal_without_lines_that_were_written_is_refused(make, name):
    async def scenario(store):
        journal, opened = await written(store, ["a"], ["b"], ["c", "d"])
        await journal.release(opened)
        await execute(store, CUTS[name])
        await refused(store)

    through(make, scenario)


def test_a_taken_over_journal_that_was_cut_is_refused(make, clock):
    async def scenario(store):
        await written(store, ["a"])
        await execute(store, CUTS["all lines"])
        clock.moved_ms += 30_001
        await refused(store)

    through(make, scenario)


def test_a_cut_journal_of_a_pause_is_refused(make):
    async def scenario(store):
        journal, opened = await written(store, ["a"])
        assert await journal.end(opened, "a pause", is_final=False)
        await execute(store, CUTS["all lines"])
        await refused(store)

    through(make, scenario)


def test_a_finished_journal_whose_outcome_was_deleted_is_refused(make):
    async def scenario(store):
        journal, opened = await written(store, ["a"])
        assert await journal.end(opened, "its outcome", is_final=True)
        assert (await journal_of(store).open("k", "head")).outcome == "its outcome"
        await execute(store, "UPDATE codemode_journals SET outcome = NULL")
        await refused(store)

    through(make, scenario)


def test_a_cut_journal_refuses_no_other_one(make):
    async def scenario(store):
        for key in ("k", "other"):
            journal, opened = await written(store, ["a"], key=key)
            await journal.release(opened)
        await execute(
            store,
            "DELETE FROM codemode_journal_lines WHERE journal = (SELECT id FROM codemode_journals WHERE key = 'k')",
        )
        await refused(store)
        assert (await journal_of(store).open("other", "head")).lines == ("a",)

    through(make, scenario)


def test_lines_of_older_tables_are_counted(tmp_path, monkeypatch):
    path = tmp_path / "old.sqlite"

    async def scenario():
        with monkeypatch.context() as older:
            older.setattr(tables, "UPGRADES", tables.UPGRADES[:4])
            store = SqliteInterruptStore(path)
            await execute(
                store,
                "INSERT INTO codemode_journals VALUES ('j', 'acme', 'support', 'k', '\"h\"', 1, NULL, NULL, 0, 0, 1)",
            )
            await execute(store, "INSERT INTO codemode_journal_lines VALUES ('j', 1, 1, '=a')")
            await execute(store, "INSERT INTO codemode_journal_lines VALUES ('j', 1, 2, '=b')")
            await store.aclose()
        async with SqliteInterruptStore(path) as store:
            journal = journal_of(store)
            opened = await journal.open("k", "h")
            assert opened.lines == ("a", "b")
            assert await journal.write(opened, ["c"])
            await journal.release(opened)
            await execute(store, "DELETE FROM codemode_journal_lines WHERE texts = '=c'")
            await refused(store)

    within(scenario())


def test_a_purged_journal_begins_anew():
    async def scenario():
        clock = Clock()
        async with MemoryInterruptStore(clock=clock) as store:
            journal, opened = await written(store, ["a"])
            await journal.release(opened)
            await execute(store, "DELETE FROM codemode_journals")
            await execute(store, "DELETE FROM codemode_journal_lines")
            assert (await journal.open("k", "head")).lines == ()

    within(scenario())
