"""What the host's pipeline has not let through is told to nobody: a canary is looked for wherever somebody can look."""

from __future__ import annotations

import asyncio
import json
import logging
from enum import StrEnum
from typing import Any, Literal

import pydantic
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pausing import OK, go_on
from suite import full_only
from waiting import within

from codemode import CodeModeError, CodeModeToolError, Interrupt, Tool, request_interrupt, run_code_mode

# The program writes it in two parts, so that not even its text holds it.
CANARY = "CANARY-7731"
MADE = "const canary = 'CAN' + 'ARY-7731';"


class Watch:
    """Everything that a host, a person, a program or a log can see of an invocation."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.seen: list[str] = []
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")
        self.caplog = caplog
        self.events = 0

    def options(self, **more: Any) -> dict[str, Any]:
        hooks = ("call", "result")
        lifecycle: dict[str, Any] = {f"on_nested_tool_{name}": self.hear for name in hooks}
        lifecycle |= {"on_interrupt": self.hear, "on_trace": self.hear}
        telemetry = {"is_enabled": True, "tracer": self.tracer}
        return {"lifecycle": lifecycle, "telemetry": telemetry, "approval": {"mode": "interrupt"}, **more}

    def hear(self, event: Any) -> None:
        self.events += 1
        plain = event.to_dict(causes=True)
        for shown in (plain.get("interrupt"), plain.get("interruptedBy")):
            self._without_continuation(shown)
        self.seen.append(json.dumps(plain, default=str))
        for name in ("to_text", "_repr_html_", "to_html"):
            if hasattr(event, name):
                self.seen.append(getattr(event, name)())

    def _without_continuation(self, shown: Any) -> None:
        if isinstance(shown, dict):
            shown.pop("continuation", None)  # the host's own: it has what a replay compares

    def look(self, outcome: Any) -> None:
        if isinstance(outcome, CodeModeError):
            self.look_at_error(outcome)
        elif isinstance(outcome, Interrupt):
            plain = outcome.to_dict()
            self._without_continuation(plain)
            self.seen.append(json.dumps(plain))
        else:
            self.seen.append(json.dumps(outcome))

    def look_at_error(self, error: BaseException) -> None:
        self.seen.append(f"{error!r} {error} {getattr(error, 'details', '')} {getattr(error, 'calls', '')}")
        recovery = getattr(error, "recovery", None)
        if recovery is not None:
            self.look(recovery)
        for cause in (error.__cause__, None if error.__suppress_context__ else error.__context__):
            if cause is not None:
                self.look_at_error(cause)

    def everything(self) -> str:
        spans = [span.to_json() for span in self.exporter.get_finished_spans()]
        assert self.events
        assert spans
        return "\n".join([*self.seen, *spans, self.caplog.text])


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> Watch:
    caplog.set_level(logging.DEBUG)
    return Watch(caplog)


def ended(js: str, tools: Any, options: Any) -> Any:
    try:
        return within(run_code_mode(MADE + js, tools, options=options))
    except CodeModeError as error:
        return error


# --- inputs


class Color(StrEnum):
    RED = "red"


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int = 0
    color: Color = Color.RED
    counts: dict[str, int] = {}
    pet: Cat | Dog | None = pydantic.Field(None, discriminator="kind")
    quoted: str = ""
    asserted: str = ""
    broken: str = ""
    told: str = ""

    @pydantic.field_validator("quoted", "asserted", "broken", "told")
    @classmethod
    def _quoting(cls, value: str, info: pydantic.ValidationInfo) -> str:
        if not value:
            return value
        if info.field_name == "asserted":
            raise AssertionError(f"not {value}")
        raised = {"quoted": ValueError, "broken": RuntimeError, "told": CodeModeToolError}[info.field_name or ""]
        raise raised(f"{value} it is")


PROPERTIES = {
    "number": {"type": "integer"},
    "color": {"enum": ["red"]},
    "short": {"type": "string", "maxLength": 3, "pattern": "^x"},
    "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    "rows": {"type": "array", "items": {"type": "object", "additionalProperties": False}},
    "named": {"propertyNames": {"maxLength": 3}},
    "either": {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["a"]}]},
}
JSON_SCHEMA = {"type": "object", "properties": PROPERTIES, "additionalProperties": False}
WRONG_FOR_JSON = [
    "{number: canary}", "{color: canary}", "{short: canary}", "{counts: {[canary]: canary}}", "{rows: [{[canary]: 1}]}",
    "{[canary]: 1}", "{named: {[canary]: 1}}", "canary", "[canary]", "{either: {[canary]: canary}}",
]  # fmt: skip
WRONG_FOR_MODELS = [
    "{number: canary}", "{color: canary}", "{counts: {[canary]: canary}}", "{pet: {kind: canary}}", "{quoted: canary}",
    "{asserted: canary}", "{broken: canary}", "{told: canary}", "{[canary]: 1}", "canary", "[canary]",
]  # fmt: skip
WRONG = [(JSON_SCHEMA, one) for one in WRONG_FOR_JSON] + [(Strict, one) for one in WRONG_FOR_MODELS]


def nothing(_call: Any) -> None:
    return None


@pytest.mark.parametrize("caught", [True, False], ids=["caught", "thrown"])
@pytest.mark.parametrize(("schema", "wrong"), WRONG, ids=str)
def test_an_input_that_was_not_taken_is_not_quoted(watch: Watch, schema: Any, wrong: str, *, caught: bool) -> None:
    tools = [Tool("take", execute=lambda value: "ran", input_schema=schema)]
    call = f"const made = {wrong}; return await tools.take(made)"
    js = f"try {{ {call} }} catch (e) {{ return [e.name, e.message] }}" if caught else call
    outcome = ended(js, tools, watch.options(pipeline={"before": nothing}))
    assert isinstance(outcome, list) == caught, outcome
    watch.look(outcome)
    assert CANARY not in watch.everything()


def test_what_the_schema_says_is_still_told(watch: Watch) -> None:
    options = watch.options(pipeline={"before": nothing})
    js = "const rows = [{}, {x: 1}]; return await tools.take({number: canary, counts: {a: canary}, rows})"
    error = ended(js, [Tool("take", execute=print, input_schema=JSON_SCHEMA)], options)
    assert error.details["problems"] == [
        {"path": "number", "message": "expected integer, got string"},
        {"path": "counts", "message": "expected integer, got string"},
        {"path": "rows[1]", "message": "is not valid"},
    ]
    js = "return await tools.take({number: canary, color: canary, quoted: canary})"
    error = ended(js, [Tool("take", execute=print, input_schema=Strict)], options)
    assert error.details["problems"] == [
        {"path": "number", "message": "Input should be a valid integer"},
        {"path": "color", "message": "Input should be 'red'"},
        {"path": "quoted", "message": "is not valid"},
    ]


def scrubs(call: Any) -> Any:
    return {**call.input, "token": "***"}


def refuses(call: Any) -> Any:
    raise CodeModeToolError("no")


def fails_with_input(value: Any) -> None:
    raise RuntimeError(f"what came was {value}")


def tells_of_input(value: Any) -> None:
    raise CodeModeToolError(f"what came was {value}", details={"value": value})


def pauses(value: Any) -> None:
    request_interrupt({"kind": "card", "for": value})


ENDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "answered": (lambda value: value, {}),
    "failed": (fails_with_input, {}),
    "told": (tells_of_input, {}),
    "paused": (pauses, {}),
    "approved": (lambda value: value, {"needs_approval": True}),
    "undecided": (lambda value: value, {"needs_approval": fails_with_input}),
    "too late": (None, {}),
    "wrong output": (lambda value: value, {"output_schema": {"type": "string"}}),
    "no output": (lambda value: object(), {}),
    "only declared": (None, {}),
}


@pytest.mark.parametrize("before", [scrubs, refuses], ids=["scrubbed", "refused"])
@pytest.mark.parametrize("end", ENDS)
def test_an_input_that_was_scrubbed_is_seen_nowhere(watch: Watch, passing_time: Any, end: str, before: Any) -> None:
    async def hangs(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    execute, settings = ENDS[end]
    tools = [Tool("take", execute=hangs if end == "too late" else execute, **settings)]
    options = watch.options(pipeline={"before": before}, execution_policy={"timeout_ms": 60_000})
    outcome = ended("return await tools.take({token: canary, other: 1})", tools, options)
    watch.look(outcome)
    if isinstance(outcome, Interrupt):
        for answer in ("fine",) if end == "paused" else (OK, {"approved": False, "reason": "r"}):
            fresh = (
                outcome
                if answer != {"approved": False, "reason": "r"}
                else ended("return await tools.take({token: canary, other: 1})", tools, options)
            )
            watch.look(resumed(fresh, tools, answer, options))
    everything = watch.everything()
    assert CANARY not in everything
    if before is scrubs and end != "only declared":
        assert '"token": "***"' in everything


def resumed(interrupt: Interrupt, tools: Any, answer: Any, options: Any) -> Any:
    try:
        return go_on(interrupt, tools, answer, options=options)
    except CodeModeError as error:
        return error


@pytest.mark.parametrize("name", ["unknown", "constructor"])
def test_the_input_of_a_call_of_no_tool_is_seen_nowhere(watch: Watch, name: str) -> None:
    options = watch.options(pipeline={"before": scrubs})
    watch.look(ended(f"return await tools[{name!r} + ''].call(null, canary)", [Tool("take", execute=print)], options))
    watch.look(ended(f"return await tools[{name!r} + 'x'](canary)", [Tool("take", execute=print)], options))
    assert CANARY not in watch.everything()


def test_an_input_too_large_is_not_quoted(watch: Watch) -> None:
    options = watch.options(pipeline={"before": scrubs}, execution_policy={"max_tool_input_bytes": 50})
    js = "return await tools.take({token: canary.repeat(20), [canary]: 1})"
    outcome = ended(js, [Tool("take", execute=print)], options)
    assert "limit is 50 bytes" in str(outcome)
    watch.look(outcome)
    assert CANARY not in watch.everything()


# --- outputs


class Unwritable:
    def __repr__(self) -> str:
        return CANARY


class Answer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int = 0

    @pydantic.model_serializer
    def _write(self) -> Any:
        raise ValueError(CANARY)


OUTPUTS: dict[str, tuple[Any, Any]] = {
    "plain": ({"secret": CANARY}, None),
    "of a schema": ({"number": CANARY, CANARY: 1}, JSON_SCHEMA),
    "of a model": ({"number": CANARY, CANARY: 1}, Strict),
    "quoted by a model": ({"quoted": CANARY}, Strict),
    "broken by a model": ({"broken": CANARY}, Strict),
    "told by a model": ({"told": CANARY}, Strict),
    "no json": ({CANARY: object()}, None),
    "no json within": ({CANARY: [Unwritable()]}, None),
    "unwritable": ({CANARY: Answer()}, None),
    "unwritable by its type": (Answer(), Answer),
    "a cycle": (None, None),
    "large": ({"secret": CANARY * 1000}, None),
    "an iterator": (lambda: (CANARY for _ in range(3)), None),
}


@pytest.mark.parametrize("after", ["scrubbed", *full_only("refused", "null")])
@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_that_was_scrubbed_is_seen_nowhere(watch: Watch, output: str, after: str) -> None:
    made, schema = OUTPUTS[output]
    if output == "a cycle":
        made = {}
        made[CANARY] = made

    def judge(_call: Any, _output: Any) -> Any:
        if after == "refused":
            raise CodeModeToolError("no")
        return {"scrubbed": True}

    tools = [Tool("give", execute=lambda _value: made() if callable(made) else made, output_schema=schema)]
    options = watch.options(pipeline={"after": judge}, execution_policy={"max_tool_output_bytes": 8000})
    watch.look(ended("return await tools.give()", tools, options))
    watch.look(ended("try { return await tools.give() } catch (e) { return [e.name, e.message] }", tools, options))
    assert CANARY not in watch.everything()
