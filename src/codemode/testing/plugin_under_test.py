"""A plugin as its contract's checks use it, on each surface."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

Request: TypeAlias = tuple[str, Mapping[str, Any]]
"""What a model sends: the name of a tool that it is offered, and its input."""

_TOOL_CALL = re.compile(r"\btools\.(\w+)\(")


class SurfaceUnderTest(Protocol):
    """One surface, as a model meets it in a framework."""

    @property
    def name(self) -> str:
        """The name of the surface in test ids."""
        ...

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the tools that a model is offered in place of all others, with direct calls where there are."""
        ...

    @property
    def tells_what_was_done(self) -> bool:
        """True when the text of a failed program names the calls that it had made."""
        ...

    def request(self, program: str) -> Request:
        """Return what a model sends to run a program that calls tools as ``tools.name(input)``."""
        ...

    def answer(self, value: Any) -> tuple[bool, Any]:
        """Return whether a program, or a direct call, went well, and its value or error, of what a model was given."""
        ...


@dataclass(frozen=True)
class _CodeModeSurface:
    name: str = "codeMode"
    offered: tuple[str, ...] = ("codeMode",)
    tells_what_was_done: bool = True

    def request(self, program: str) -> Request:
        return "codeMode", {"js": program}

    def answer(self, value: Any) -> tuple[bool, Any]:
        return True, value


@dataclass(frozen=True)
class _CodeCallSurface:
    name: str = "CodeCall"
    offered: tuple[str, ...] = ("codecall_search", "codecall_describe", "codecall_execute", "codecall_invoke")
    tells_what_was_done: bool = False

    def request(self, program: str) -> Request:
        return "codecall_execute", {"script": _TOOL_CALL.sub(r'callTool("\1", ', program)}

    def answer(self, value: Any) -> tuple[bool, Any]:
        if not isinstance(value, dict) or "status" not in value:
            raise AssertionError(f"a model was given {json.dumps(value, default=repr)}, which has no status")
        status = cast("Mapping[str, Any]", value)
        return (True, status["result"]) if status["status"] == "ok" else (False, status)


@dataclass(frozen=True)
class _ExecWaitSurface:
    name: str = "exec"
    offered: tuple[str, ...] = ("exec", "wait")
    tells_what_was_done: bool = True

    def request(self, program: str) -> Request:
        return "exec", {"code": program}

    def answer(self, value: Any) -> tuple[bool, Any]:
        if not isinstance(value, dict) or "status" not in value:
            raise AssertionError(f"a model was given {json.dumps(value, default=repr)}, which has no status")
        result = cast("Mapping[str, Any]", value)
        return (True, result["value"]) if result["status"] == "completed" else (False, result)


CODE_MODE: SurfaceUnderTest = _CodeModeSurface()
CODE_CALL: SurfaceUnderTest = _CodeCallSurface()
EXEC_WAIT: SurfaceUnderTest = _ExecWaitSurface()


SECRET = "/srv/secret/path"  # noqa: S105 - stands for host text that no program may read
WAIT_SECONDS = 60.0  # how long a check waits for what is sure to come
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True)
class ContractTool:
    """A tool for the framework: an annotated function with a docstring, sync or async.

    ``function`` may also come from `PluginUnderTest.create_agent_function`. A ``sequential`` one is declared to
    run without parallel calls, where the framework has such a declaration.
    """

    name: str
    function: Any
    needs_approval: bool = False
    sequential: bool = False


@dataclass(frozen=True, kw_only=True)
class ContractAnswer:
    """A person's answer to one waiting call. ``input`` is the edited input, None to run what was shown."""

    approved: bool
    input: Mapping[str, Any] | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class WaitingCall:
    """An inner call that waits, as the framework's user sees it."""

    id: str
    tool_name: str
    input: Any


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The tool gave the model an answer. ``value`` is that answer, as plain JSON.

    ``content`` are its images, audio and files, each with its MIME type and its bytes. ``conversation`` is JSON text:
    all that the framework's user must store so that the model can be asked again in the same conversation.
    """

    value: Any
    content: tuple[tuple[str, bytes], ...] = ()
    conversation: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The tool failed, in the framework's own way. ``text`` is what the model was told."""

    text: str
    conversation: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Paused:
    """The run waits for people. ``state`` is JSON text: all that the framework's user must keep to go on."""

    calls: Sequence[WaitingCall]
    state: str


Outcome: TypeAlias = Finished | Failed | Paused

Hear: TypeAlias = Callable[[str, Literal["begun", "ended"]], None]
"""Is told the name of each call that the framework tells of while the run goes on, and which of the two it did."""


class PluginUnderTest(Protocol):
    """One plugin in its framework. Every method makes a new agent over these tools, with a scripted model.

    CodeCall's agents have direct calls enabled, and no other option. Give a check two minutes on the clock of its
    event loop, for some put that forward by more than a program may take.
    """

    @property
    def face(self) -> SurfaceUnderTest:
        """The surface of the agents: `CODE_MODE`, `CODE_CALL` or `EXEC_WAIT`."""
        ...

    def with_settings(self, **settings: Any) -> PluginUnderTest:
        """Return the same plugin with other settings, in the plugin's own words.

        ``options`` are those of `CodeModeOptions`, on every surface; ``tools`` and ``listing`` are passed on codeMode
        alone, ``keep`` on CodeCall too. Wrong settings may raise here, or when the agent is made.
        """
        ...

    def create_content_part(self, data: bytes, mime_type: str) -> Any:
        """Return the framework's own object for content, as a tool of its users gives it."""
        ...

    def get_content_bytes(self, part: Any) -> bytes:
        """Return the bytes of such an object, as a tool is given it."""
        ...

    async def describe_tools(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        """Return what the model is offered: descriptions by tool name."""
        ...

    async def call(
        self,
        tools: Sequence[ContractTool],
        name: str,
        given: Mapping[str, Any],
        *,
        after: str = "",
        hear: Hear | None = None,
    ) -> Outcome:
        """Make the model call one of its tools once, with this input.

        ``after`` is the conversation of an earlier outcome, which this turn continues; without it a new one starts.
        ``hear`` gets the calls in programs as the framework's user would, from its stream of events.
        """
        ...

    async def resume(self, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]) -> Outcome:
        """Continue a paused run. Raises the framework's own exception when the answers are refused."""
        ...

    def create_agent_function(self, tools: Sequence[ContractTool], program: str) -> Any:
        """Return a function for a tool without input, which runs an agent of its own, made as all others.

        Its model lets the program run over these tools, and the tool gives what the program gave.
        """
        ...


Check: TypeAlias = Callable[[PluginUnderTest], Awaitable[None]]


async def run_program(
    plugin: PluginUnderTest, tools: Sequence[ContractTool], js: str, *, after: str = "", hear: Hear | None = None
) -> Outcome:
    """Make the model run a program, written for codeMode. Returns its value, or the text of its failure."""
    name, arguments = plugin.face.request(js)
    return to_program_outcome(plugin, await plugin.call(tools, name, arguments, after=after, hear=hear))


async def resume_run(
    plugin: PluginUnderTest, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]
) -> Outcome:
    """Resume a paused run. Returns as `run_program` does."""
    return to_program_outcome(plugin, await plugin.resume(tools, state, answers))


def to_program_outcome(plugin: PluginUnderTest, outcome: Outcome) -> Outcome:
    """Convert the outcome of a tool call to the outcome of its program."""
    if not isinstance(outcome, Finished):
        return outcome
    is_well, value = plugin.face.answer(outcome.value)
    if is_well:
        return replace(outcome, value=value)
    return Failed(text=json.dumps(value), conversation=outcome.conversation)


async def wait_with_timeout(work: Awaitable[ResultT]) -> ResultT:
    """Await something for at most `WAIT_SECONDS`."""
    return await asyncio.wait_for(work, WAIT_SECONDS)


REFUNDS_PROGRAM = """
const stock = await tools.stock({ product: "nut" });
const refunds = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
return [stock, ...refunds.map((one) => one.status)];
"""


class RecordingTools:
    """A tool that runs at once and one that needs approval; ``calls`` are their calls in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.tools = (
            ContractTool(name="stock", function=self.stock),
            ContractTool(name="refund", function=self.refund, needs_approval=True),
        )

    def stock(self, product: str) -> int:
        """How many of a product there are."""
        self.calls.append(("stock", product))
        return 7

    def refund(self, order: str, cents: int = 500) -> str:
        """Give the money for an order back."""
        self.calls.append(("refund", (order, cents)))
        return f"refunded {order}"

    async def run_until_pause(self, plugin: PluginUnderTest, js: str = REFUNDS_PROGRAM) -> Paused:
        """Run a program that pauses."""
        outcome = await run_program(plugin, self.tools, js)
        assert isinstance(outcome, Paused), outcome
        return outcome


def create_edit_and_deny_answers(paused: Paused) -> dict[str, ContractAnswer]:
    """Answer the two refunds of a pause: the first edited, the second denied."""
    first, second = paused.calls
    edited = ContractAnswer(approved=True, input={"order": "a", "cents": 300})
    return {first.id: edited, second.id: ContractAnswer(approved=False, reason="not this one")}
