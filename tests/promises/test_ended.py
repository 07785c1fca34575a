"""A paused program that was ended goes on no more, whoever answers."""

from __future__ import annotations

import pytest
from pausing import PAUSING, Spy, start
from suite import full_only
from waiting import within

from codemode import CodeModeProtocolError, continue_interrupt
from codemode.execution.resume import OpenedContinuation
from codemode.stores import SqliteInterruptStore

OK = {"approved": True}
JS = "return await tools.refund({ order: 'a' })"


@pytest.fixture
def spy():
    return Spy()


@pytest.fixture(params=["memory", *full_only("sqlite")])
def options(request, tmp_path):
    guard = {"guard": SqliteInterruptStore(tmp_path / "claims.sqlite").guard} if request.param == "sqlite" else {}
    return {**PAUSING, "continuation": guard}


def go_on(interrupt, spy, options):
    return within(continue_interrupt(interrupt, OK, tools=[spy.guarded()], options=options))


def test_what_was_ended_does_not_go_on(spy, options):
    interrupt = start(JS, [spy.guarded()], options)
    for _ in range(2):  # whoever does not know whether it was ended ends it again
        within(OpenedContinuation.end(interrupt.continuation, options=options))
    for _ in range(2):
        with pytest.raises(CodeModeProtocolError, match="already been resumed"):
            go_on(interrupt, spy, options)
    assert spy.ran == []


def test_what_has_gone_on_cannot_be_ended(spy, options):
    interrupt = start(JS, [spy.guarded()], options)
    value = go_on(interrupt, spy, options)
    with pytest.raises(CodeModeProtocolError, match="already been resumed"):
        within(OpenedContinuation.end(interrupt.continuation, options=options))
    assert go_on(interrupt, spy, options) == value
    assert len(spy.ran) == 1


def test_a_continuation_of_somebody_else_is_not_ended(spy, options):
    interrupt = start(JS, [spy.guarded()], options)
    with pytest.raises(CodeModeProtocolError):
        within(OpenedContinuation.end(interrupt.continuation, options=options, conversation_id="another"))
    go_on(interrupt, spy, options)
    assert len(spy.ran) == 1
