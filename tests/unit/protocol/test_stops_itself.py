"""A program whose own worker stops it: the deadline gives it a little more time, once; others are ended at once."""

from dataclasses import replace

import pytest
from invocation_settings import SETTINGS

from codemode.errors import CodeModeTimeoutError
from codemode.execution.outcome_texts import failure_text
from codemode.profile import GuestSettings
from codemode.protocol import events
from codemode.protocol.events import Failed, FinishInvocation, GrantGracePeriod
from codemode.protocol.invocation import Invocation
from codemode.protocol.messages import EngineFailed, TurnEnded


def running(*, stops_itself: bool) -> Invocation:
    settings = SETTINGS
    face = replace(settings.profile.guest, stops_itself=stops_itself)
    machine = Invocation(replace(settings, profile=replace(settings.profile, guest=face)))
    machine.start("for (;;) {}", analysis_ms=None)
    return machine


def ending(effects: list[events.Effect]) -> BaseException:
    (finish,) = (effect for effect in effects if isinstance(effect, FinishInvocation))
    assert isinstance(finish.ending, Failed)
    return finish.ending.error


def test_the_deadline_passes_twice_in_a_turn():
    machine = running(stops_itself=True)
    assert machine.receive(events.DeadlinePassed()) == [GrantGracePeriod()]
    assert isinstance(ending(machine.receive(events.DeadlinePassed())), CodeModeTimeoutError)


def test_the_deadline_passes_once_where_nothing_stops_by_itself():
    assert isinstance(ending(running(stops_itself=False).receive(events.DeadlinePassed())), CodeModeTimeoutError)


@pytest.mark.parametrize(("late_ms", "is_told"), [(0, False), (499, False), (500, True)])
def test_a_loop_that_stood_still_for_long_is_told_beside_the_time_that_is_over(late_ms: int, is_told: bool):
    error = ending(running(stops_itself=False).receive(events.DeadlinePassed(late_ms)))
    assert ("event loop stood still for 500 ms beyond that" in str(error)) is is_told
    assert ("may not be the program's fault" in failure_text(error, "for (;;) {}")) is is_told


@pytest.mark.parametrize(("stops_itself", "is_timeout"), [(True, True), (False, False)])
def test_who_stops_itself_says_so(stops_itself: bool, is_timeout: bool):
    error = ending(running(stops_itself=stops_itself).receive(EngineFailed("stopped", "time")))
    assert isinstance(error, CodeModeTimeoutError) is is_timeout


def test_the_worker_is_told_how_long():
    settings = SETTINGS
    face = GuestSettings(wrapper="module", globals=(), stops_itself=True)
    told = replace(settings, profile=replace(settings.profile, guest=face)).to_worker_fields()
    assert told["stops"] == [settings.limits.timeout_ms, settings.limits.timeout_includes_tools]
    assert "stops" not in settings.to_worker_fields()


def test_an_idle_program_is_ended_at_its_deadline():
    machine = running(stops_itself=True)
    assert ending(machine.receive(TurnEnded(0))) is not None
