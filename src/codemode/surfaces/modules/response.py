"""The response to a request: plain JSON for the model, with what the host may want beside it. Imports next to nothing.

A host that is out of descriptors can import nothing more, and answers nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...trace.late_values import Late
from .diagnostic import Diagnostic, diagnostic, ordered

if TYPE_CHECKING:
    from ...errors import Resumable
    from ...trace.trace import Trace


class RunResponse(dict[str, Any]):
    """What the model is answered: ``logs``, ``result``, ``diagnostics``, and ``toolTrace`` once something was called.

    ``declarations`` is there when the request named servers whose declarations the model has not read. The attributes
    are the host's alone: ``exception`` is the error behind the diagnostics, ``trace`` the `Trace` of the run, and
    ``recovery``, after a timeout or a dead worker, the `Interrupt` from which the program can go on.
    """

    exception: BaseException | None = None
    recovery: Resumable | None = None
    _trace: Any = None

    @property
    def trace(self) -> Trace | None:
        """The `Trace` of the run, None where nothing ran."""
        if type(self._trace) is Late:
            self._trace = self._trace.value()
        return self._trace

    def keep_trace(self, trace: Trace | Late | None) -> None:
        """Take the trace, or what makes it when somebody looks: most are never looked at."""
        self._trace = trace


def refused(diagnostics: Iterable[Diagnostic], exception: BaseException | None = None) -> RunResponse:
    """Return the response to a request of which nothing ran."""
    response = RunResponse(logs=[], result=None, diagnostics=ordered(diagnostics))
    response.exception = exception
    return response


def host_failed() -> Diagnostic:
    """Return what is said of a program that the host could not run."""
    message = "the host could not run the program"
    return diagnostic("error", "WORKER_FAILED", message, hint="Tell the user: the host's log says more.")
