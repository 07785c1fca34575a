"""OpenTelemetry listener of an invocation's events. Loaded only when enabled.

The only module that imports OpenTelemetry. Spans and attributes follow the GenAI conventions, with ``code_mode.*`` for
the rest. Texts that a program wrote never become a name, an attribute or a message; the surface decides whether host
errors are recorded in full or by class.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Token
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from ..errors import (
    HOST_BRIDGE_ERROR,
    HOST_FETCH_ERROR,
    HOST_TOOL_ERROR,
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeTimeoutError,
    CodeModeToolApprovalRequiredError,
    CodeModeWorkerError,
)
from ..options.parts import Telemetry
from ..profile import HostErrorRules
from ..trace.events import (
    FetchRequestEvent,
    FetchResultEvent,
    InterruptEvent,
    InvocationEvent,
    InvocationStarted,
    NestedToolCallEvent,
    NestedToolResultEvent,
    WorkerAcquiredEvent,
)
from ..trace.late_values import LazyValue, get_stored_value
from ..trace.trace import Trace
from .recorded_names import SCOPE, Attributes, get_package_version

if TYPE_CHECKING:
    from opentelemetry import context as otel_context
    from opentelemetry import trace as otel_trace
    from opentelemetry.metrics import Meter

Call: TypeAlias = NestedToolCallEvent | FetchRequestEvent
Result: TypeAlias = NestedToolResultEvent | FetchResultEvent

_HTTP_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_HOST_CODES = (HOST_TOOL_ERROR, HOST_FETCH_ERROR, HOST_BRIDGE_ERROR)
_MAX_RECORDED_CHARACTERS = 8_000
_MAX_COMPOSED_BYTES = 256_000
# Errors whose message is this library's own wording and holds nothing of a program, an input or an output.
_ERRORS_WITH_OWN_MESSAGE = (
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeTimeoutError,
    CodeModeToolApprovalRequiredError,
    CodeModeWorkerError,
)


def create_telemetry_listeners(
    options: Telemetry, find_tool: Callable[[str], Any], outer_tool: str, host_errors: HostErrorRules
) -> tuple[Callable[[InvocationEvent], None], ...]:
    """Return what records one invocation; nothing unless enabled.

    ``find_tool`` returns None for a name that is no tool's. Raises `ValueError` when OpenTelemetry is not installed.
    """
    require_opentelemetry_if_enabled(options)
    return (_TelemetryRecorder(options, find_tool, outer_tool, host_errors),) if options.is_enabled else ()


def require_opentelemetry_if_enabled(options: Telemetry) -> None:
    """Raise `ValueError` when telemetry is enabled and OpenTelemetry is not installed."""
    if not options.is_enabled:
        return
    try:
        from opentelemetry import context, metrics, trace

        del context, metrics, trace
    except ImportError as error:
        raise ValueError(
            "telemetry.is_enabled needs OpenTelemetry: pip install 'codemode-toolkit[telemetry]'"
        ) from error


def create_surface_metric_recorder_or_none(options: Telemetry) -> Callable[[str, int, Attributes], None] | None:
    """Return what adds to a counter of a surface, by its name after ``code_mode.``; None unless enabled.

    Raises `ValueError` when OpenTelemetry is not installed.
    """
    require_opentelemetry_if_enabled(options)
    if not options.is_enabled:
        return None
    instruments = _get_or_create_instruments(options.meter)
    meter: Meter = options.meter or instruments.meter
    counters = instruments.surface_counters

    def add_to_counter(name: str, amount: int, attributes: Attributes) -> None:
        counter = counters.get(name)
        if counter is None:  # what there is of something now may be less than it was
            create_counter = meter.create_up_down_counter if name.endswith(".current") else meter.create_counter
            counter = counters[name] = create_counter(f"code_mode.{name.removesuffix('.current')}")
        counter.add(amount, attributes)

    return add_to_counter


@contextmanager
def tool_span(options: Telemetry, name: str, tool_call_id: str | None) -> Generator[None]:
    """Record what is done within as a call of a tool of the model's own."""
    from opentelemetry import trace

    tracer: otel_trace.Tracer = options.tracer or trace.get_tracer(SCOPE, get_package_version())
    attributes = {**_create_tool_attributes(name, tool_call_id or ""), **_create_metadata_attributes(options.metadata)}
    if options.function_id is not None:
        attributes["code_mode.function_id"] = options.function_id
    span = tracer.start_span(f"execute_tool {name}", attributes=attributes)
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    except BaseException as error:
        span.set_attribute("error.type", _get_error_type(error))
        span.set_status(trace.Status(trace.StatusCode.ERROR))
        raise
    finally:
        span.end()


class _TelemetryRecorder:
    """Records one invocation as spans and metrics."""

    def __init__(
        self, options: Telemetry, find_tool: Callable[[str], Any], outer_tool: str, host_errors: HostErrorRules
    ) -> None:
        from opentelemetry import context, trace

        self._outer_tool = outer_tool
        self._records_host_errors = host_errors.in_spans and options.record_inputs and options.record_outputs
        self._options = options
        self._find_tool = find_tool
        self._context, self._trace = context, trace
        self._tracer: otel_trace.Tracer = options.tracer or trace.get_tracer(SCOPE, get_package_version())
        self._instruments = _get_or_create_instruments(options.meter)
        self._outer_span: otel_trace.Span = trace.INVALID_SPAN
        self._has_worker = False
        self._open_spans: dict[int, tuple[otel_trace.Span, Token[otel_context.Context] | None]] = {}

    def __call__(self, event: InvocationEvent) -> None:
        match event:
            case NestedToolResultEvent() | FetchResultEvent():
                self._on_call_end(event)
            case NestedToolCallEvent() | FetchRequestEvent():
                self._on_call_start(event)
            case InvocationStarted():
                self._on_invocation_start(event)
            case WorkerAcquiredEvent():
                self._has_worker = True
                self._instruments.workers_in_use.add(1)
                self._instruments.worker_wait.record(event.wait_ms / 1000)
            case InterruptEvent():
                self._instruments.interrupts.add(1)
                count = len(event.interrupt.requests)
                self._outer_span.add_event("code_mode.interrupt", {"code_mode.pending_request_count": count})
            case Trace():
                self._on_invocation_end(event)
            case _:
                pass

    def _on_invocation_start(self, event: InvocationStarted) -> None:
        attributes: Attributes = {
            **_create_tool_attributes(self._outer_tool, event.outer_tool_call_id),
            "code_mode.invocation_id": event.invocation_id,
            "code_mode.outer_tool_call_id": event.outer_tool_call_id,
            **_create_metadata_attributes(self._options.metadata),
        }
        if self._options.function_id is not None:
            attributes["code_mode.function_id"] = self._options.function_id
        if event.tool_kind is not None:
            attributes["toolKind"] = event.tool_kind
        if event.tool_input_kind is not None:
            attributes["toolInputKind"] = event.tool_input_kind
        if self._options.record_inputs:
            attributes["code_mode.source_bytes"] = event.source_bytes
        self._outer_span = self._tracer.start_span(f"execute_tool {self._outer_tool}", attributes=attributes)

    def _on_call_start(self, call: Call) -> None:
        name, attributes = self._create_span_name_and_attributes(call)
        if self._options.record_arguments and self._options.record_inputs and "gen_ai.tool.name" in attributes:
            attributes |= _create_payload_attribute("gen_ai.tool.call.arguments", call, "input")
        attributes |= {
            "code_mode.invocation_id": call.invocation_id,
            "code_mode.bridge_index": call.bridge_index,
            "code_mode.replayed": call.replayed,
        }
        if self._options.record_inputs:
            attributes["code_mode.input_bytes"] = call.input_bytes
        parent = self._trace.set_span_in_context(self._outer_span)
        span = self._tracer.start_span(name, context=parent, attributes=attributes)
        # Events of a call come in the task that performs it: what the tool itself records becomes part of this span.
        token = None if call.replayed else self._context.attach(self._trace.set_span_in_context(span))
        self._open_spans[call.bridge_index] = (span, token)

    def _create_span_name_and_attributes(self, call: Call) -> tuple[str, Attributes]:
        if isinstance(call, FetchRequestEvent):
            method = call.method if call.method in _HTTP_METHODS else "_OTHER"
            attributes: Attributes = {"code_mode.kind": "fetch", "http.request.method": method}
            return f"fetch {method}", attributes
        if self._find_tool(call.tool_name) is None:
            return "execute_tool", {"code_mode.kind": "tool", **_create_tool_attributes(None, call.tool_call_id)}
        attributes = {"code_mode.kind": "tool", **_create_tool_attributes(call.tool_name, call.tool_call_id)}
        return f"execute_tool {call.tool_name}", attributes

    def _on_call_end(self, result: Result) -> None:
        span, token = self._open_spans.pop(result.bridge_index)
        if token is not None and result.status != "aborted":  # an aborted call ends outside of its task
            self._context.detach(token)
        kind = "fetch" if isinstance(result, FetchResultEvent) else "tool"
        span.set_attribute("code_mode.status", result.status)
        if self._options.record_outputs and result.output_bytes is not None:
            span.set_attribute("code_mode.output_bytes", result.output_bytes)
            if self._options.record_arguments and isinstance(result, NestedToolResultEvent):
                span.set_attributes(_create_payload_attribute("gen_ai.tool.call.result", result, "output"))
        if isinstance(result, FetchResultEvent):
            self._add_http_attributes(span, result)
        if result.error is not None:
            self._record_failure(span, result.error)
        span.end()
        self._instruments.bridge_requests.add(
            1, {"code_mode.kind": kind, "code_mode.status": result.status, "code_mode.replayed": result.replayed}
        )

    def _add_http_attributes(self, span: otel_trace.Span, result: FetchResultEvent) -> None:
        if result.http_status is None:
            return
        # The request was made, so that the policy has allowed its host.
        span.set_attribute("http.response.status_code", result.http_status)
        span.set_attribute("server.address", _parse_url_host(result.url))

    def _on_invocation_end(self, trace: Trace) -> None:
        attributes: Attributes = {"code_mode.status": trace.status}
        if trace.error is not None:
            attributes["error.type"] = _get_error_type(trace.error)
        if self._has_worker:
            self._instruments.workers_in_use.add(-1)
        self._instruments.duration.record(trace.duration_ms / 1000, attributes)
        span = self._outer_span
        span.set_attributes(attributes)
        span.set_attribute("code_mode.bridge_request_count", len(trace.bridge_requests))
        if self._options.record_outputs and trace.result_bytes is not None:
            span.set_attribute("code_mode.result_bytes", trace.result_bytes)
        if trace.error is not None:
            self._record_failure(span, trace.error)
        span.end()

    def _record_failure(self, span: otel_trace.Span, error: BaseException) -> None:
        message = str(error) if isinstance(error, _ERRORS_WITH_OWN_MESSAGE) else None
        span.set_attribute("error.type", _get_error_type(error))
        span.set_attribute("code_mode.error.name", type(error).__name__)
        if isinstance(error, CodeModeError):
            span.set_attribute("code_mode.error.code", error.code)
        if message is not None:
            span.set_attribute("code_mode.error.message", message)
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, message))
        host_error = _get_host_error(error)
        if host_error is not None and self._records_host_errors:
            span.record_exception(host_error)
        else:
            span.add_event("exception", {"exception.type": type(host_error or error).__qualname__})


class _MetricInstruments:
    """The metrics of one meter. ``is_given``: it is a caller's own, and not kept here."""

    def __init__(self, meter: Meter, *, is_given: bool) -> None:
        self.meter: Any = None if is_given else meter
        self.duration = meter.create_histogram("code_mode.invocation.duration", "s", "How long programs run")
        self.bridge_requests = meter.create_counter("code_mode.bridge_requests", "{request}", "Calls of programs")
        self.workers_in_use = meter.create_up_down_counter("code_mode.workers.in_use", "{worker}", "Busy workers")
        self.worker_wait = meter.create_histogram("code_mode.worker.wait", "s", "Time spent waiting for a worker")
        self.surface_counters: dict[str, Any] = {}
        self.interrupts = meter.create_counter("code_mode.interrupts", "{interrupt}", "Programs that paused")


_instruments_by_provider: weakref.WeakKeyDictionary[Any, _MetricInstruments] = weakref.WeakKeyDictionary()


def _get_or_create_instruments(meter: Any) -> _MetricInstruments:
    """Return the instruments of a meter, None for the global one, made once.

    Some versions of the SDK warn of a second set, and where no provider is set each meter that is asked for is another
    one, kept for the day that there is a provider.
    """
    from opentelemetry import metrics

    provider: Any = meter or metrics.get_meter_provider()
    instruments = _instruments_by_provider.get(provider)
    if instruments is None:
        package_meter: Meter = meter or provider.get_meter(SCOPE, get_package_version())
        instruments = _instruments_by_provider[provider] = _MetricInstruments(package_meter, is_given=meter is not None)
    return instruments


def _create_tool_attributes(name: str | None, tool_call_id: str) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.id": tool_call_id,
        "gen_ai.tool.type": "function",
    }
    return attributes if name is None else {**attributes, "gen_ai.tool.name": name}


def _create_payload_attribute(attribute: str, event: InvocationEvent, name: str) -> Attributes:
    """Return the JSON text of a call's value, cut if it is long; an empty text without a value."""
    value: object = get_stored_value(event, name)
    if not isinstance(value, LazyValue):
        return {}
    text = value.text
    if not text:  # its large texts are elsewhere: it is put together here only where that is little work
        if getattr(event, f"{name}_bytes") > _MAX_COMPOSED_BYTES:
            return {}
        text = json.dumps(value.value())
    return {attribute: text if len(text) <= _MAX_RECORDED_CHARACTERS else f"{text[:_MAX_RECORDED_CHARACTERS]}..."}


def _create_metadata_attributes(metadata: Mapping[str, Any] | None) -> Attributes:
    return {
        f"code_mode.metadata.{key}": value
        for key, value in (metadata or {}).items()
        if isinstance(value, str | int | float | bool)
    }


def _get_host_error(error: BaseException) -> BaseException | None:
    """Return what host code raised, None when the error is not the host's."""
    is_host_error = isinstance(error, CodeModeError) and error.code in _HOST_CODES
    return error.__cause__ if is_host_error else None


def _get_error_type(error: BaseException) -> str:
    host_error = _get_host_error(error)
    if host_error is not None:
        return type(host_error).__qualname__
    return error.code if isinstance(error, CodeModeError) else type(error).__qualname__


def _parse_url_host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
