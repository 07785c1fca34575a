"""What a tool of CodeCall raises is told to nobody: looked for in answers, events, spans, records and notifications."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pydantic
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from suite import full_only

from codemode import CodeModeToolError, Interrupt, Tool, audit_log, create_code_call_tools
from codemode.options.parts import Lifecycle

PASSWORD, FOLDER = "hunter2-CANARY", "/srv/CANARY"
PLACES = ("CANARY", "/srv", "line 77", "line 5", "connect", "Traceback", "\\n  File")
TEXT = (
    f'cannot open {FOLDER}/ledger.db on line 77\n  File "{FOLDER}/db.py", line 5, in connect\n'
    "Traceback (most recent call last):"
)


class Config(Exception):
    """Says what it was raised for in all the ways that an error can."""

    def __init__(self) -> None:
        super().__init__(TEXT, PASSWORD)
        self.add_note(PASSWORD)
        self.code, self.details, self.reason = PASSWORD, {"password": PASSWORD}, PASSWORD

    def __str__(self) -> str:
        return TEXT


def raises(_value: Any) -> None:
    try:
        raise ValueError(f"password={PASSWORD}")
    except ValueError as error:
        raise Config from error


def tells(_value: Any) -> None:
    try:
        raises(None)
    except Config as error:
        raise CodeModeToolError("sold out", code="SOLD", details={"left": 0}) from error


def refuses(_value: Any, _context: Any) -> bool:
    raise Config


class Broken(pydantic.BaseModel):
    n: int = 0

    @pydantic.model_validator(mode="after")
    def _check(self) -> Broken:
        raise Config

    @pydantic.model_serializer
    def _write(self) -> Any:
        raise Config


def unwritable(_value: Any) -> Any:
    return Broken.model_construct(n=1)


TOOLS = {
    "raises": Tool("raises", execute=raises),
    "tells": Tool("tells", execute=tells),
    "group": Tool("group", execute=lambda _value: (_ for _ in ()).throw(ExceptionGroup(TEXT, [Config()]))),
    "validates": Tool("validates", execute=raises, input_schema=Broken),
    "gives": Tool("gives", execute=unwritable),
    "gives_wrong": Tool("gives_wrong", execute=lambda _value: {"n": 1}, output_schema=Broken),
    "decides": Tool("decides", execute=raises, needs_approval=refuses),
}
ASKS = Tool("asks", execute=lambda value: value, needs_approval=True)
LOOKED_AT = (
    "return [e.message, e.stack, e.code, JSON.stringify(e), ...Object.getOwnPropertyNames(e).map((n) => String(e[n]))]"
)


class Watch:
    """A tool set of one tool, and everything that is told of it."""

    def __init__(self, tool: Tool, **options: Any) -> None:
        self.seen: list[Any] = []
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        hooks = [name for name in Lifecycle.__dataclass_fields__ if name.startswith("on_") and "error" not in name]
        lifecycle = audit_log(self.seen.append, lifecycle=dict.fromkeys(hooks, self._hear))
        settings = {
            "lifecycle": lifecycle,
            "telemetry": {"is_enabled": True, "tracer": provider.get_tracer("test")},
            "approval": {"mode": "interrupt"},
            "continuation": {"keys": "a key of this test"},
            **options.pop("settings", {}),
        }
        options |= {"notify": self.seen.append, "direct_calls": {"enabled": True}, "settings": settings}
        self.tools = create_code_call_tools([tool, ASKS], options)

    def _hear(self, event: Any) -> None:
        self.seen += [event.to_dict(), repr(event), str(event)]

    def all_ways(self, name: str) -> None:
        call = f"await callTool('{name}', {{ n: 1 }})"
        for script in (
            f"return {call}",
            f"try {{ {call} }} catch (e) {{ {LOOKED_AT} }}",
            f"return await callTool('{name}', {{ n: 1 }}, {{ throwOnError: false }})",
            f"let kept; try {{ {call} }} catch (e) {{ kept = e }} await callTool('asks'); throw kept",
            f"await callTool('asks'); {call}",
        ):
            self._look(self.tools.execute_sync({"script": script}))
        self._look(self.tools.invoke_sync({"tool": name, "input": {"n": 1}}))

    def _look(self, answer: Any) -> None:
        if isinstance(answer, Interrupt):
            self.seen.append(answer.to_dict())
            for _ in range(2):
                self._look(self.tools.resume_sync(answer, {"approved": True}))
        else:
            failed = answer.exception
            self.seen += [answer, repr(failed), str(failed), getattr(failed, "details", None)]

    def everything(self) -> str:
        spans = [span.to_json() for span in self.exporter.get_finished_spans()]
        assert spans
        return "\n".join([json.dumps(self.seen, default=str), *spans])


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("shown", ["hidden", *full_only("message")])
def test_what_a_tool_raises_is_seen_nowhere(name: str, shown: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL)  # the host's log is where it is
    watch = Watch(TOOLS[name], tool_errors=shown)
    watch.all_ways(name)
    everything = watch.everything()
    assert [one for one in (*PLACES, PASSWORD) if one in everything] == []


@pytest.mark.parametrize("side", ["before", "after"])
def test_what_a_hook_of_the_pipeline_raises_is_seen_nowhere(side: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.CRITICAL)

    def hook(call: Any, *_output: Any) -> None:
        if call.tool_name == "echo":
            raise Config

    watch = Watch(Tool("echo", execute=lambda value: value), settings={"pipeline": {side: hook}})
    watch.all_ways("echo")
    everything = watch.everything()
    assert [one for one in (*PLACES, PASSWORD) if one in everything] == []


def scrubbed(call: Any) -> Any:
    return {**call.input, "token": "***"} if "token" in call.input else None


def kept_back(_call: Any, output: Any) -> Any:
    return {**output, "secret": "***"} if "secret" in output else None


def _without_continuations(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _without_continuations(value) for key, value in plain.items() if key != "continuation"}
    return [_without_continuations(one) for one in plain] if isinstance(plain, list | tuple) else plain


@pytest.mark.parametrize("how", ["script", "invoke"])
@pytest.mark.parametrize("answer", [{"runAgain": True}, {"value": {"secret": 1}}, {"error": {"message": "m"}}])
def test_what_hooks_have_kept_back_stays_back_through_a_recovery(passing_time: Any, how: str, answer: Any):
    """The call is late; the way on, and what is answered there, know the scrubbed input alone."""
    ran: list[Any] = []

    async def hangs(value: Any) -> None:
        ran.append(value)
        passing_time.skip(60)
        await asyncio.Event().wait()

    def gives(value: Any) -> Any:
        ran.append(value)
        return {"secret": PASSWORD, "got": value}

    settings = {
        "pipeline": {"before": scrubbed, "after": kept_back},
        "execution_policy": {"timeout_includes_tools": True},
    }
    late, quick = (
        Watch(Tool("pay", execute=run), settings=settings, vm={"timeoutMs": 60_000}) for run in (hangs, gives)
    )
    if how == "script":
        script = "const canary = 'hunter2-' + 'CANARY'; return await callTool('pay', { token: canary })"
        ended = late.tools.execute_sync({"script": script})
    else:
        ended = late.tools.invoke_sync({"tool": "pay", "input": {"token": PASSWORD}})
    assert ended["status"] == "timeout"
    request = ended.recovery.requests[0].to_dict()
    resumed = [quick.tools.resume_sync(ended.recovery, answer) for _ in range(2)]
    assert resumed[0] == resumed[1]
    assert all(value == {"token": "***"} for value in ran)
    seen = [_without_continuations(one) for one in (*late.seen, *quick.seen) if not isinstance(one, str)]
    assert PASSWORD not in json.dumps([seen, request, ended, *resumed], default=str)
