"""A paused program together with what it was answered, verified and validated. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ..data.records import record
from ..interrupts.interrupt import Interrupt
from ..interrupts.resolutions import Answer
from ..protocol.continuation import Continuation
from .allowed_input import CheckedInput


@record
class AnsweredPause:
    """A pause and its answers. ``inputs`` are what answered calls run with; both are by request id."""

    interrupt: Interrupt
    continuation: Continuation
    answers: Mapping[int, Answer]
    inputs: Mapping[int, CheckedInput]
