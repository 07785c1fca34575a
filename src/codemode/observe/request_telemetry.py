"""Gateway telemetry: a span per request; metrics of calls, servers and approvals.

Callers pass names that the operator has chosen, codes and numbers, and no text of a client or a server.
Imports nothing of OpenTelemetry: without a recorder that has imported it, nothing is recorded.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from ..errors import CodeModeError
from .recorded_names import SCOPE, Attributes, get_package_version

_PREFIX = "code_mode.gateway."
_PROPAGATED_HEADERS = ("traceparent", "tracestate", "baggage")


@contextmanager
def request_span(
    name: str, attributes: Attributes, *, request_carrier: Mapping[str, str], transport_carrier: Mapping[str, str]
) -> Generator[Any]:
    """Record a block as the answer to a request, and yield its span for `record_span_failure`.

    Its parent comes from ``request_carrier``, else it is the current span, else it comes from ``transport_carrier``:
    mappings with ``traceparent`` and ``tracestate``. The block's own spans are its children, and outgoing requests
    carry it, with or without a recorder.
    """
    trace, propagate = _get_loaded_opentelemetry_module("trace"), _get_loaded_opentelemetry_module("propagate")
    if trace is None or propagate is None:
        yield None
        return
    parent = None
    for carrier in (
        (request_carrier,)
        if trace.get_current_span().get_span_context().is_valid
        else (request_carrier, transport_carrier)
    ):
        context = propagate.extract(carrier)
        if trace.get_current_span(context).get_span_context().is_valid:
            parent = context
            break
    tracer = trace.get_tracer(SCOPE, get_package_version())
    with tracer.start_as_current_span(
        name,
        context=parent,
        kind=trace.SpanKind.SERVER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def record_span_failure(span: Any, kind: str) -> None:
    """Record on the span of a request the kind of its failure: a code, or the name of a class."""
    trace = _get_loaded_opentelemetry_module("trace")
    if span is not None and trace is not None:
        span.set_attribute("error.type", kind)
        span.set_status(trace.Status(trace.StatusCode.ERROR))


def get_propagation_headers() -> dict[str, str]:
    """Return the headers with which a request to another host names the current span as its parent."""
    propagate = _get_loaded_opentelemetry_module("propagate")
    if propagate is None:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name: carrier[name] for name in _PROPAGATED_HEADERS if name in carrier} if carrier else carrier


@contextmanager
def without_parent_trace() -> Generator[None]:
    """Start tasks in this block without a parent trace."""
    context = _get_loaded_opentelemetry_module("context")
    if context is None:
        yield
        return
    token = context.attach(context.Context())
    try:
        yield
    finally:
        context.detach(token)


def is_telemetry_recorded() -> bool:
    """Return whether this process records spans or metrics."""
    trace, metrics = _get_loaded_opentelemetry_module("trace"), _get_loaded_opentelemetry_module("metrics")
    if trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return True
    # OpenTelemetry's stand-in for an unset provider has no public name.
    return metrics is not None and not type(metrics.get_meter_provider()).__name__.startswith("_Proxy")


def record_call_end_and_get_trace_id(outer_id: str, outcome: str, seconds: float, codes: list[str]) -> str | None:
    """Record how a gateway tool call ended: ``answered``, ``input_required`` or the name of a class.

    Returns its trace id, 32 hexadecimal digits, or None without a trace.
    """
    trace, trace_id = _get_loaded_opentelemetry_module("trace"), None
    if trace is not None:
        span = trace.get_current_span()
        context = span.get_span_context()
        trace_id = f"{context.trace_id:032x}" if context.is_valid else None
        span.set_attribute("code_mode.outer_tool_call_id", outer_id)
        span.set_attribute("code_mode.ended", outcome)
        if codes:
            span.set_attribute("code_mode.codes", codes)
    if (instruments := _get_or_create_instruments()) is not None:
        attributes: Attributes = {"code_mode.ended": outcome, "code_mode.waiting": "WAITING_FOR_APPROVAL" in codes}
        instruments["call.duration"].record(seconds, attributes)
    return trace_id


@contextmanager
def measure_server_call(server: str) -> Generator[None]:
    """Measure the call of a tool of a server."""
    started_at, attributes = time.monotonic(), Attributes({"code_mode.server": server})
    try:
        yield
    except BaseException as error:
        attributes["error.type"] = error.code if isinstance(error, CodeModeError) else type(error).__name__
        raise
    finally:
        if (instruments := _get_or_create_instruments()) is not None:
            instruments["inner_call.duration"].record(time.monotonic() - started_at, attributes)


def record_server_start(server: str, *, is_ready: bool, is_restart: bool) -> None:
    """Count a start of a server, by whether it succeeded and whether there was one before."""
    attributes: Attributes = {
        "code_mode.server": server,
        "code_mode.status": "ready" if is_ready else "failed",
        "code_mode.restart": is_restart,
    }
    _add_to_counter("server.starts", 1, attributes)


def record_requested_approvals(channel: str, calls: int) -> None:
    """Count inner calls that people are asked about, by the way: ``retry``, ``session`` or ``store``."""
    _add_to_counter("approvals.asked", calls, {"code_mode.way": channel})


@contextmanager
def count_approvals_while_waiting(channel: str, calls: int) -> Generator[None]:
    """Count the inner calls for which a request waits for people, while it does."""
    attributes: Attributes = {"code_mode.way": channel}
    _add_to_counter("approvals.waiting", calls, attributes)
    try:
        yield
    finally:
        _add_to_counter("approvals.waiting", -calls, attributes)


def _add_to_counter(name: str, amount: int, attributes: Attributes) -> None:
    if (instruments := _get_or_create_instruments()) is not None:
        instruments[name].add(amount, attributes)


_instruments_by_provider: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def _get_loaded_opentelemetry_module(name: str) -> Any:
    """Return a module of OpenTelemetry; None if it is not imported, and therefore not in use."""
    module = sys.modules.get(f"opentelemetry.{name}")
    # A module that another thread is importing lacks some names.
    is_initializing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_initializing else module


def _get_or_create_instruments() -> dict[str, Any] | None:
    """Return the instruments of the provider that is set, made once."""
    metrics = _get_loaded_opentelemetry_module("metrics")
    if metrics is None:
        return None
    provider = metrics.get_meter_provider()
    instruments = _instruments_by_provider.get(provider)
    if instruments is None:
        meter = provider.get_meter(SCOPE, get_package_version())
        instruments = _instruments_by_provider[provider] = {
            "call.duration": meter.create_histogram(f"{_PREFIX}call.duration", "s", "How long calls of the tool take"),
            "inner_call.duration": meter.create_histogram(
                f"{_PREFIX}inner_call.duration", "s", "How long calls of servers take"
            ),
            "server.starts": meter.create_counter(f"{_PREFIX}server.starts", "{start}", "Starts of servers"),
            "approvals.asked": meter.create_counter(f"{_PREFIX}approvals.asked", "{call}", "Calls asked about"),
            "approvals.waiting": meter.create_up_down_counter(
                f"{_PREFIX}approvals.waiting", "{call}", "Calls that wait for a decision"
            ),
        }
    return instruments
