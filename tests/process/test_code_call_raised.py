"""What tools raise, in all the ways to them: the same status, whatever it is, at once, after a pause and repeated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal, Self

import pydantic
from suite import each_row, rounds
from waiting import within

from codemode import (
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolError,
    Interrupt,
    PoolOptions,
    Tool,
    WorkerPool,
    audit_log,
    create_code_call_tools,
)
from codemode.errors import (
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeWorkerError,
)

KEYED = {"approval": {"mode": "interrupt"}, "continuation": {"keys": "a key of this test"}}
AT_ONCE = "return await callTool('fail', { a: 1 })"
CAUGHT = "return await callTool('fail', { a: 1 }, { throwOnError: false })"
BEFORE = "let kept; try { await callTool('fail', { a: 1 }) } catch (e) { kept = e } await callTool('ask'); throw kept"
BEHIND = "await callTool('ask'); console.log('on'); return await callTool('fail', { a: 1 })"


class Unwritable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Odd(CodeModeToolError):
    """An error of a host's own, that nothing but its own arguments makes."""

    def __new__(cls, *, secret: str) -> Self:
        return super().__new__(cls, secret)

    def __init__(self, *, secret: str) -> None:
        super().__init__("odd", code="ODD", details={"left": 0})
        self.secret = secret


class Fixed(CodeModeToolError):
    """An error of a host's own whose details nobody can set."""

    details = property(lambda _self: {"left": 0})  # pyright: ignore[reportAssignmentType]

    def __init__(self) -> None:
        Exception.__init__(self, "fixed")
        self.message, self.code = "fixed", self.default_code
        self.trace, self.calls, self.recovery = None, (), None


def circle() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["again"] = made
    return made


def nested(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = [made]
    return made


def with_details(**details: Any) -> Callable[[], CodeModeToolError]:
    return lambda: CodeModeToolError("no", details=details)


def with_reason(reason: str) -> CodeModeToolError:
    error = CodeModeToolError("no")
    error.reason = reason
    return error


def said(message: str = "no", code: str = "EXECUTION", **more: Any) -> dict[str, Any]:
    return {"source": "tool", "toolName": "fail", "toolInput": {"a": 1}, "message": message, "code": code, **more}


LIKE_OURS = {"ran": False, "call": {"code": "X"}}
HIDDEN = said("the tool failed")
RAISED: dict[str, tuple[Callable[[], BaseException], dict[str, Any]]] = {
    # codes that are the face's own, chosen by a tool
    **{
        code: (lambda code=code: CodeModeToolError("no", code=code), said(code=code))
        for code in ("LIMIT", "VALIDATION", "UnknownTool", "ACCESS_DENIED", "SELF_REFERENCE", "TIMEOUT", "EXECUTION")
    },
    "the code of hidden errors": (lambda: CodeModeToolError("/srv/x", code="CODE_MODE_HOST_TOOL_ERROR"), HIDDEN),
    "a limit of its own": (lambda: CodeModeBridgeLimitError("no"), said()),
    "a limit of its own with the code": (lambda: CodeModeBridgeLimitError("no", code="LIMIT"), said(code="LIMIT")),
    "a reason": (lambda: with_reason("limit"), said()),
    "no code": (lambda: CodeModeToolError("no", code=""), said(code="")),
    # what the author of a tool wrote is never changed
    "a path": (lambda: CodeModeToolError("no fail at /srv/x.txt"), said("no fail at /srv/x.txt")),
    "a path with a code": (
        lambda: CodeModeToolError("/srv/fail/x", code="VALIDATION"),
        said("/srv/fail/x", "VALIDATION"),
    ),
    # details, of which only JSON is told
    "details": (with_details(left=0), said(details={"left": 0})),
    "details in a circle": (with_details(x=circle()), said()),
    "details without text": (with_details(x=Unwritable()), said()),
    "details that are no JSON": (with_details(ran=object(), call=object()), said()),
    "details like ours": (
        with_details(**LIKE_OURS),
        said(details=LIKE_OURS),
    ),
    "details that are deep": (with_details(x=nested(400)), said(details={"x": nested(400)})),
    "details that are too deep": (with_details(x=nested(700)), said()),
    "details that are large": (with_details(x="y" * 100_000), said()),
    "no number": (with_details(x=float("nan")), said(details={"x": None})),
    "a long number": (with_details(x=10**5000), said()),
    # classes that mean something else where the host itself raises them
    **{
        kind.__name__: (lambda kind=kind: kind("no"), said())
        for kind in (
            CodeModeAbortedError,
            CodeModeConcurrencyError,
            CodeModeError,
            CodeModeProtocolError,
            CodeModeSerializationError,
            CodeModeSyntaxError,
            CodeModeTimeoutError,
            CodeModeToolApprovalDeniedError,
            CodeModeWorkerError,
        )
    },
    "a dead worker elsewhere": (lambda: CodeModeWorkerError("no", details={"origin": "worker"}), said()),
    "a class with fixed details": (lambda: Fixed(), said("fixed", details={"left": 0})),
    "a class of its own": (lambda: Odd(secret="hunter2"), said("odd", "ODD", details={"left": 0})),
    # what is not told
    **{
        kind.__name__: (lambda kind=kind: kind("/srv/x hunter2"), HIDDEN)
        for kind in (OSError, SystemExit, asyncio.CancelledError, GeneratorExit, StopIteration)
    },
    "a group": (lambda: BaseExceptionGroup("/srv/x", [ValueError("hunter2")]), HIDDEN),
    "a wrong code": (lambda: CodeModeToolError("hunter2", code=5), HIDDEN),  # pyright: ignore[reportArgumentType]
    "no text": (lambda: CodeModeToolError(None), HIDDEN),  # pyright: ignore[reportArgumentType]
}


def toolset(make: Callable[[], BaseException], **settings: Any) -> Any:
    def fail(_value: Any) -> None:
        raise make()

    tools = [Tool("fail", execute=fail), Tool("ask", execute=lambda _value: None, needs_approval=True)]
    return create_code_call_tools(tools, {"settings": {**KEYED, **settings}, "direct_calls": {"enabled": True}})


@each_row("case", [*RAISED][:: rounds(2, 1)])
def test_each_way_to_a_tool_tells_the_same(case: str):
    make, expected = RAISED[case]
    tools = toolset(make)
    at_once = tools.execute_sync({"script": AT_ONCE})
    assert at_once == {"status": "tool_error", "error": expected}
    assert json.loads(json.dumps(at_once)) == at_once
    caught = tools.execute_sync({"script": CAUGHT})["result"]
    if "deep" not in case:  # of a result that is deep something is cut
        fields = {key: value for key, value in expected.items() if key not in ("source", "toolInput")}
        assert caught == {"success": False, "error": fields}
    assert tools.invoke_sync({"tool": "fail", "input": {"a": 1}}) == at_once
    for script in (BEFORE, BEHIND):
        paused = tools.execute_sync({"script": script})
        assert isinstance(paused, Interrupt)
        first, again = (tools.resume_sync(paused, {"approved": True}) for _ in range(2))
        assert first == again
        assert (first["status"], first["error"]) == ("tool_error", expected)
        assert first.get("logs") == (None if script == BEFORE else [{"level": "log", "message": "on"}])


class Checked(pydantic.BaseModel):
    n: Literal["/srv/a/b", "/srv/c/d"] | int

    @pydantic.field_validator("n")
    @classmethod
    def _check(cls, value: Any) -> Any:
        if value == 1:
            raise ValueError("nothing in /srv/books/1.db for 1")
        assert value != 2, "/srv/2.db is closed"
        return value


def test_what_validators_and_schemas_say_is_never_changed():
    tools = create_code_call_tools([Tool("take", execute=lambda _value: None, input_schema=Checked)])
    expected = {
        1: "nothing in /srv/books/1.db for 1",
        2: "/srv/2.db is closed",
        "/srv/e": "'/srv/a/b' or '/srv/c/d'",
    }
    for value, told in expected.items():
        error = tools.execute_sync({"script": f"return await callTool('take', {{ n: {json.dumps(value)} }})"})["error"]
        assert (error["code"], told in error["message"]) == ("VALIDATION", True), error


def test_a_hosts_own_class_stays_behind_the_status():
    failed = toolset(lambda: Odd(secret="hunter2")).execute_sync({"script": AT_ONCE})
    assert failed.exception.code == "ODD"
    conflict = toolset(lambda: CodeModeConcurrencyError("no")).execute_sync({"script": AT_ONCE})
    assert type(conflict.exception) is CodeModeConcurrencyError


def test_one_error_that_many_runs_raise_tells_each_of_its_own_call():
    """A hook keeps all of them from their ends until each has failed."""
    one, count = CodeModeToolError("sold out", code="SOLD", details={"left": 0}), 6

    async def all_of_them(pool: WorkerPool) -> list[Any]:
        begun, ended = asyncio.Barrier(count), asyncio.Barrier(count)

        async def fail(_value: Any) -> None:
            await begun.wait()
            raise one

        async def end(_trace: Any) -> None:
            await ended.wait()

        options = {"settings": {"lifecycle": {"on_trace": end}}, "direct_calls": {"enabled": True}}
        tools = create_code_call_tools([Tool("fail", execute=fail)], options, pool=pool)
        scripts = [tools.execute({"script": f"return await callTool('fail', {at})"}) for at in range(count // 2)]
        calls = [tools.invoke({"tool": "fail", "input": at}) for at in range(count // 2, count)]
        return await asyncio.gather(*scripts, *calls)

    with WorkerPool(PoolOptions(max_workers=count)) as pool:
        answers = within(all_of_them(pool))
    assert [answer["error"]["toolInput"] for answer in answers] == list(range(count))
    assert all(answer["error"]["details"] == {"left": 0} for answer in answers)
    assert one.details == {"left": 0}
    assert one.trace is None


def test_the_audit_log_knows_the_time_of_a_tool_from_that_of_the_script():
    records: list[dict[str, Any]] = []
    tools = toolset(lambda: CodeModeTimeoutError("no"), lifecycle=audit_log(records.append))
    tools.execute_sync({"script": AT_ONCE})
    assert [record["event"] for record in records][-1] == "execution_failed"
