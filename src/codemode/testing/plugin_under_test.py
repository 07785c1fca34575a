"""A plugin as the checks of its promises meet it: what it is given, what it answers. Checks nothing itself."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from .faces import Face

SECRET = "/srv/secret/path"  # noqa: S105 - stands for host text that no program may read


@dataclass(frozen=True, kw_only=True)
class ContractTool:
    """A tool to give to the framework: an annotated function with a docstring, sync or async."""

    name: str
    function: Callable[..., Any]
    needs_approval: bool = False


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

    ``content`` are the images, audio and files beside it, each with its MIME type and its bytes.
    """

    value: Any
    content: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The tool failed, in the framework's own way. ``text`` is what the model was told."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Paused:
    """The run waits for people. ``state`` is JSON text: all that the framework's user must keep to go on."""

    calls: Sequence[WaitingCall]
    state: str


Outcome: TypeAlias = Finished | Failed | Paused


class PluginUnderTest(Protocol):
    """One plugin in its framework. Every method makes a new agent over these tools, with a scripted model.

    CodeCall's agents have direct calls enabled, and no other option.
    """

    @property
    def face(self) -> Face:
        """What the agents are made with: `CODE_MODE` or `CODE_CALL`."""
        ...

    def part(self, data: bytes, mime_type: str) -> Any:
        """Return the framework's own object for content, as a tool of its users gives it."""
        ...

    def bytes_of(self, part: Any) -> bytes:
        """Return the bytes of such an object, as a tool is given it."""
        ...

    async def shown(self, tools: Sequence[ContractTool]) -> Mapping[str, str]:
        """Return what the model is offered: descriptions by tool name."""
        ...

    async def call(self, tools: Sequence[ContractTool], name: str, given: Mapping[str, Any]) -> Outcome:
        """Let the model once call a tool that it is offered, with this input."""
        ...

    async def resume(self, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]) -> Outcome:
        """Go on with a paused run. Raises whatever the framework raises when the answers are refused."""
        ...


Check: TypeAlias = Callable[[PluginUnderTest], Awaitable[None]]


async def run(plugin: PluginUnderTest, tools: Sequence[ContractTool], js: str) -> Outcome:
    """Let the model run a program, written for codeMode. Returns its value, or the text of its failure."""
    name, given = plugin.face.request(js)
    return as_read(plugin, await plugin.call(tools, name, given))


async def resume(
    plugin: PluginUnderTest, tools: Sequence[ContractTool], state: str, answers: Mapping[str, ContractAnswer]
) -> Outcome:
    """Go on with a paused run. Returns as `run` does."""
    return as_read(plugin, await plugin.resume(tools, state, answers))


def as_read(plugin: PluginUnderTest, outcome: Outcome) -> Outcome:
    """Return what the answer says became of the program."""
    if not isinstance(outcome, Finished):
        return outcome
    is_well, value = plugin.face.answer(outcome.value)
    return Finished(value=value, content=outcome.content) if is_well else Failed(text=json.dumps(value))


REFUNDS = """
const stock = await tools.stock({ product: "nut" });
const refunds = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
return [stock, ...refunds.map((one) => one.status)];
"""


class Desk:
    """A tool that runs at once and one that needs approval; ``did`` is what has happened."""

    def __init__(self) -> None:
        self.did: list[tuple[str, Any]] = []
        self.tools = (
            ContractTool(name="stock", function=self.stock),
            ContractTool(name="refund", function=self.refund, needs_approval=True),
        )

    def stock(self, product: str) -> int:
        """How many of a product there are."""
        self.did.append(("stock", product))
        return 7

    def refund(self, order: str, cents: int = 500) -> str:
        """Give the money for an order back."""
        self.did.append(("refund", (order, cents)))
        return f"refunded {order}"

    async def paused(self, plugin: PluginUnderTest, js: str = REFUNDS) -> Paused:
        """Run a program that pauses."""
        outcome = await run(plugin, self.tools, js)
        assert isinstance(outcome, Paused), outcome
        return outcome


def edit_and_deny(paused: Paused) -> dict[str, ContractAnswer]:
    """Answer the two refunds of a pause: the first edited, the second denied."""
    first, second = paused.calls
    edited = ContractAnswer(approved=True, input={"order": "a", "cents": 300})
    return {first.id: edited, second.id: ContractAnswer(approved=False, reason="not this one")}
