"""OpenTelemetry of what a gateway serves: a span for each request, and metrics of calls, servers and approvals.

Callers give names that the operator has chosen, codes and numbers, and nothing that a client or a server has said.
Nothing of OpenTelemetry is imported: whoever records has done so, and where nobody has, nothing is recorded.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import CodeModeError
from .recorded_names import SCOPE, Attributes, package_version

_PREFIX = "code_mode.gateway."
_PASSED_ON = ("traceparent", "tracestate", "baggage")


class RequestSpan:
    """The span of one request, while it is answered."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def failed(self, kind: str) -> None:
        """Say of which kind the failure was: a code, or the name of a class."""
        trace = _loaded("trace")
        if self._span is not None and trace is not None:
            self._span.set_attribute("error.type", kind)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR))


@contextmanager
def request_span(
    name: str, attributes: Attributes, *, said: Mapping[str, str], brought: Mapping[str, str]
) -> Generator[RequestSpan]:
    """Record what is done within as the answer to a request.

    Its parent is the one that the request ``said``, else the current span, else that which its transport ``brought``:
    mappings with ``traceparent`` and ``tracestate``. What is done within is below it, and so are requests to others,
    whether or not anybody records.
    """
    trace, propagate = _loaded("trace"), _loaded("propagate")
    if trace is None or propagate is None:
        yield RequestSpan()
        return
    carriers = (said,) if trace.get_current_span().get_span_context().is_valid else (said, brought)
    found = [propagate.extract(one) for one in carriers]
    parent = next((one for one in found if trace.get_current_span(one).get_span_context().is_valid), None)
    tracer = trace.get_tracer(SCOPE, package_version())
    with tracer.start_as_current_span(
        name,
        context=parent,
        kind=trace.SpanKind.SERVER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield RequestSpan(span)


def passed_on() -> dict[str, str]:
    """Return the headers with which a request to another host names the current span as its parent."""
    propagate = _loaded("propagate")
    if propagate is None:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name: carrier[name] for name in _PASSED_ON if name in carrier}


@contextmanager
def in_no_trace() -> Generator[None]:
    """Let tasks that begin within belong to no trace."""
    context = _loaded("context")
    if context is None:
        yield
        return
    token = context.attach(context.Context())
    try:
        yield
    finally:
        context.detach(token)


def is_recorded() -> bool:
    """Tell whether this process has somebody who records spans or metrics; without, all would be for nobody."""
    trace, metrics = _loaded("trace"), _loaded("metrics")
    if trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return True
    # Its stand-in for a provider that nobody has set has no public name.
    return metrics is not None and not type(metrics.get_meter_provider()).__name__.startswith("_Proxy")


def trace_id() -> str | None:
    """Return the id of the current trace, 32 hexadecimal digits; None where there is none."""
    trace = _loaded("trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else None


def call_ended(outer_id: str, ended: str, seconds: float, codes: list[str]) -> None:
    """Record how a call of the gateway's tool has ended: ``answered``, ``input_required`` or the name of a class."""
    trace = _loaded("trace")
    if trace is not None:
        span = trace.get_current_span()
        span.set_attribute("code_mode.outer_tool_call_id", outer_id)
        span.set_attribute("code_mode.ended", ended)
        if codes:
            span.set_attribute("code_mode.codes", codes)
    _record("call.duration", seconds, {"code_mode.ended": ended, "code_mode.waiting": "WAITING_FOR_APPROVAL" in codes})


@contextmanager
def inner_call(server: str) -> Generator[None]:
    """Measure the call of a tool of a server."""
    began, attributes = time.monotonic(), Attributes({"code_mode.server": server})
    try:
        yield
    except BaseException as error:
        attributes["error.type"] = error.code if isinstance(error, CodeModeError) else type(error).__name__
        raise
    finally:
        _record("inner_call.duration", time.monotonic() - began, attributes)


def server_started(server: str, *, is_ready: bool, is_again: bool) -> None:
    """Count a start of a server, by whether it succeeded and whether there was one before."""
    attributes: Attributes = {
        "code_mode.server": server,
        "code_mode.status": "ready" if is_ready else "failed",
        "code_mode.restart": is_again,
    }
    _add("server.starts", 1, attributes)


def approvals_asked(way: str, calls: int) -> None:
    """Count inner calls that people are asked about, by the way: ``retry``, ``session`` or ``store``."""
    _add("approvals.asked", calls, {"code_mode.way": way})


@contextmanager
def approvals_waiting(way: str, calls: int) -> Generator[None]:
    """Count the inner calls for which a request waits for people, while it does."""
    attributes: Attributes = {"code_mode.way": way}
    _add("approvals.waiting", calls, attributes)
    try:
        yield
    finally:
        _add("approvals.waiting", -calls, attributes)


def _add(name: str, by: int, attributes: Attributes) -> None:
    if (made := _instruments()) is not None:
        made[name].add(by, attributes)


def _record(name: str, value: float, attributes: Attributes) -> None:
    if (made := _instruments()) is not None:
        made[name].record(value, attributes)


_made: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def _loaded(name: str) -> Any:
    """Return a module of OpenTelemetry; None where nobody has imported it, so that nobody records by it."""
    module = sys.modules.get(f"opentelemetry.{name}")
    # What another thread is importing at this moment has not all its names yet.
    is_begun = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_begun else module


def _instruments() -> dict[str, Any] | None:
    """Return the instruments of the provider that is set, made once."""
    metrics = _loaded("metrics")
    if metrics is None:
        return None
    provider = metrics.get_meter_provider()
    made = _made.get(provider)
    if made is None:
        meter = provider.get_meter(SCOPE, package_version())
        made = _made[provider] = {
            "call.duration": meter.create_histogram(f"{_PREFIX}call.duration", "s", "How long calls of the tool take"),
            "inner_call.duration": meter.create_histogram(
                f"{_PREFIX}inner_call.duration", "s", "How long calls of servers take"
            ),
            "server.starts": meter.create_counter(f"{_PREFIX}server.starts", "{start}", "Starts of servers"),
            "approvals.asked": meter.create_counter(f"{_PREFIX}approvals.asked", "{call}", "Calls asked about"),
            "approvals.waiting": meter.create_up_down_counter(
                f"{_PREFIX}approvals.waiting", "{call}", "Calls that a request waits with for people"
            ),
        }
    return made
