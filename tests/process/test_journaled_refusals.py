"""Journals that no host has written so, and options that a journal needs: refused before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fast_clock import Fast
from journaled_shop import JS, RESULT, Host, Shop, call, paid_already, to_the_end
from stored_pauses import Clock
from suite import each_row
from waiting import within

from codemode import CallContext, CodeModeAbortedError, CodeModeProtocolError, run_code_mode
from codemode.continuations.journal import MemoryJournal
from codemode.stores import MemoryInterruptStore


class Spoiled(MemoryJournal):
    """A journal whose texts somebody has changed."""

    spoil: Any = None

    async def open(self, key, head, *, again=False):
        opened = await super().open(key, head, again=again)
        return opened if self.spoil is None else self.spoil(opened)


def _changed(**changes):
    return lambda opened: replace(opened, **{name: change(getattr(opened, name)) for name, change in changes.items()})


@each_row(
    "spoil",
    [
        pytest.param(_changed(lines=lambda lines: (lines[1], lines[0], *lines[2:])), id="another order"),
        pytest.param(_changed(lines=lambda lines: lines[1:]), id="one left out"),
        pytest.param(_changed(lines=lambda lines: (lines[0][:-1], *lines[1:])), id="cut off"),
        pytest.param(_changed(lines=lambda lines: (lines[0].replace("1", "9"), *lines[1:])), id="changed"),
        pytest.param(_changed(lines=lambda lines: (lines[0], lines[0], *lines[1:])), id="one twice"),
        pytest.param(_changed(lines=lambda lines: ("", *lines[1:])), id="empty"),
        pytest.param(_changed(lines=lambda lines: ("x.y.z", *lines[1:])), id="of nobody"),
        pytest.param(_changed(head=lambda head: head + " "), id="another head"),
    ],
)
def test_lines_that_no_host_has_written_so_are_refused(spoil):
    async def scenario():
        shop, journal = Shop(), Spoiled(clock=Fast())
        with pytest.raises(CodeModeAbortedError):
            await call(Host(journal, dies_after=5), shop.tools)
        paid = list(shop.paid)
        journal.spoil = spoil
        with pytest.raises(CodeModeProtocolError, match="journal of this program cannot be used") as caught:
            await call(journal, shop.tools)
        assert caught.value.details["origin"] == "journal"
        assert shop.paid == paid
        journal.spoil = None  # it was let go of: whoever puts it right goes on
        result, _ = await to_the_end(journal, shop.tools, paid_already(shop))
        assert result == RESULT

    within(scenario())


def test_a_program_whose_lines_were_deleted_makes_no_call_again():
    async def scenario():
        shop, clock = Shop(), Clock()
        async with MemoryInterruptStore(clock=clock) as store:
            journal = store.journal(tenant="", app="")
            with pytest.raises(CodeModeAbortedError):
                await call(Host(journal, dies_after=5), shop.tools)
            paid = list(shop.paid)
            assert paid
            await store._run_write(lambda session: session.run("DELETE FROM codemode_journal_lines"))
            clock.moved_ms += 30_001
            with pytest.raises(CodeModeProtocolError, match="lines that were written are missing") as caught:
                await call(journal, shop.tools)
            assert caught.value.details["origin"] == "journal"
            assert shop.paid == paid

    within(scenario())


def test_lines_of_another_invocation_are_refused():
    async def scenario():
        shop, journal = Shop(), Spoiled(clock=Fast())
        with pytest.raises(CodeModeAbortedError):
            await call(Host(journal, dies_after=5), shop.tools)
        (other,) = [kept.lines for kept in journal._rows.values()]
        journal.spoil = _changed(lines=lambda lines: tuple(other))
        with pytest.raises(CodeModeProtocolError, match="not of this journal"):
            await call(journal, shop.tools, JS + ";")

    within(scenario())


def test_an_outcome_that_no_host_has_written_is_refused():
    async def scenario():
        shop, journal = Shop(), Spoiled()
        assert await call(journal, shop.tools) == RESULT
        journal.spoil = _changed(outcome=lambda text: text.replace("5", "6"))
        with pytest.raises(CodeModeProtocolError, match="recorded outcome of this program cannot be read"):
            await call(journal, shop.tools)

    within(scenario())


def test_another_version_of_the_engine_is_refused_by_both_names(monkeypatch):
    async def scenario():
        shop, journal = Shop(), MemoryJournal(clock=Fast())
        with pytest.raises(CodeModeAbortedError):
            await call(Host(journal, dies_after=4), shop.tools)
        with monkeypatch.context() as patch:
            patch.setattr("codemode.execution.journal.find_engine_version", lambda: "0.0.1")
            with pytest.raises(CodeModeProtocolError, match=r"this host has 0\.0\.1"):
                await call(journal, shop.tools)
        result, _ = await to_the_end(journal, shop.tools, paid_already(shop))
        assert result == RESULT

    within(scenario())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keys": "k"}, r"continuation\.journal needs a conversation_id"),
        ({"conversation_id": "thread"}, r"continuation\.journal needs continuation\.keys"),
    ],
)
def test_what_a_journal_needs_is_asked_for_before_anything_runs(given, message):
    shop = Shop()
    with pytest.raises(ValueError, match=message):
        within(
            run_code_mode(
                JS,
                shop.tools,
                options={"continuation": {**given, "journal": MemoryJournal()}},
                call=CallContext(tool_call_id="call_1"),
            )
        )
    assert shop.paid == []


def test_a_journal_without_its_methods_is_a_wrong_option():
    with pytest.raises(ValueError, match=r"continuation\.journal must be None or have the methods"):
        within(run_code_mode("return 1", [], options={"continuation": {"journal": object()}}))
