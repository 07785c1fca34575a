"""Which calls of programs a person decides about, also those of agents behind tools."""

from __future__ import annotations

import copy
import inspect
import json
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, cast

from agents import Agent, FunctionTool, RunContextWrapper, RunState, ToolApprovalItem
from agents.tool_context import ToolContext

from codemode import PendingRequest, request_interrupt
from codemode.plugins import ToolSelection

from . import sdk
from .content import made_call
from .conversion import annotations_of

DESTRUCTIVE = "destructive"
_EDITED = "codemode:edited:"

ApprovalRule: TypeAlias = bool | Callable[[Any, dict[str, Any], str], Any]
"""Whether to ask, or ``(context, arguments, call_id) -> bool`` as the SDK's ``needs_approval``, sync or async."""
ApprovalRules: TypeAlias = Mapping[str, ApprovalRule] | Callable[[str, dict[str, Any]], bool] | Literal["destructive"]
"""By names of tools; or a function of name and arguments; or what MCP servers declare of their tools."""


class Approvals:
    """The rules of one set of tools, beside their own ``needs_approval``. Raises `ValueError` for malformed ones."""

    def __init__(self, rules: ApprovalRules | None) -> None:
        self._is_declared = rules == DESTRUCTIVE
        known = rules is None or self._is_declared or callable(rules) or isinstance(cast("Any", rules), Mapping)
        if not known:
            raise ValueError(
                'approve must map names of tools to rules, such as {"delete_file": True}, or be a function,'
                f" {DESTRUCTIVE!r} (what tools declare of themselves) or None, got {rules!r}"
            )
        self._ask_all = rules if callable(rules) else None
        self._rules: dict[str, ApprovalRule] = dict(cast("Any", rules)) if isinstance(rules, Mapping) else {}
        for name, rule in self._rules.items():
            if not isinstance(rule, bool) and not callable(rule):
                why = f"approve[{name!r}] must be True, False or a function, got {rule!r}"
                raise ValueError(why)  # noqa: TRY004 - as every wrong option

    def require_known(self, names: Collection[str]) -> None:
        """Raise `ValueError` for a rule about a tool that is not there: its name may be misspelt."""
        for name in sorted(self._rules.keys() - set(names)):
            raise ValueError(ToolSelection.describe_unknown_name("approve", name, names))

    def names(self, name: str) -> bool:
        """Tell whether there is a rule for a name."""
        return self._rules.get(name, False) is not False

    def may_ask(self, tool: FunctionTool) -> bool:
        """Tell whether a person may have to decide about some call of a tool."""
        return tool.needs_approval is not False or self.has_rule(tool)

    def has_rule(self, tool: FunctionTool) -> bool:
        """Tell whether a rule here says something of a tool."""
        if self._ask_all is not None or (self._is_declared and _may_destroy(tool)):
            return True
        return self.names(tool.name)

    async def asks(
        self, tool: FunctionTool, context: ToolContext[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        """Tell whether a person must decide about this call."""
        if await sdk.asks(tool, context, await made_call(tool.name, call_id, arguments)):
            return True
        return await self._rule_asks(tool, context, arguments, call_id)

    async def _rule_asks(self, tool: FunctionTool, context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        if self._is_declared and _may_destroy(tool):
            return True
        rule = self._rules.get(tool.name, False)
        answer: Any = rule if isinstance(rule, bool) else rule(context, dict(arguments), call_id)
        if self._ask_all is not None:
            answer = self._ask_all(tool.name, dict(arguments))
        return bool(await answer if inspect.isawaitable(answer) else answer)

    def gated(self, tool: FunctionTool) -> FunctionTool:
        """Return a tool that the model calls itself, under the rules here too, as the SDK asks about its tools."""
        if not self.has_rule(tool) or tool.needs_approval is True:
            return tool
        own = tool.needs_approval

        async def asks(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
            if not isinstance(own, bool) and await own(context, arguments, call_id):
                return True
            return await self._rule_asks(tool, context, arguments, call_id)

        copied = copy.copy(tool)
        copied.needs_approval = asks
        return copied


def _may_destroy(tool: FunctionTool) -> bool:
    """Tell whether a tool is declared destructive, or nothing is declared of it that says otherwise."""
    said = annotations_of(tool)
    destroys = said.get("destructiveHint")
    return destroys is True or (destroys is None and said.get("readOnlyHint") is not True)


async def decided_before(context: ToolContext[Any], name: str, call_id: str, arguments: Any) -> bool | None:
    """Return what has been decided for all calls of a tool in this run; None if nothing has."""
    item = await _item(context, name, call_id, arguments)
    return context.get_approval_status(name, call_id, current_invocation=item)


async def decide_for_all(context: ToolContext[Any], waited: PendingRequest, *, is_approved: bool) -> None:
    """Let a decision about all calls of a tool, made about one that waited, hold for the whole run."""
    item = await _item(context, waited.tool_name, waited.interrupt_id, waited.input or {})
    if is_approved:
        context.approve_tool(item, always_approve=True)
    else:
        context.reject_tool(item, always_reject=True)


async def _item(context: ToolContext[Any], name: str, call_id: str, arguments: Any) -> ToolApprovalItem:
    agent: Any = context.agent
    return ToolApprovalItem(agent=agent, raw_item=await made_call(name, call_id, arguments), tool_name=name)


def approve(
    state: RunState[Any, Any],
    item: ToolApprovalItem,
    always_approve: bool = False,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - as the core calls it
) -> None:
    """Approve a call of a program that waits, as ``state.approve(item)`` does; ``input`` is what it runs with instead.

    The SDK knows no edited calls: to itself the call is rejected, with a message that only the program's pause reads.
    Raises `ValueError` for an item of another kind.
    """
    if input is None:
        state.approve(item, always_approve=always_approve)
        return
    if always_approve or not may_be_edited(item):
        raise ValueError("an edited input is for one call of a program of codeMode, as it stands in the interruptions")
    mark: str = cast("Any", item.raw_item).id
    state.reject(item, rejection_message=f"{_EDITED}{mark}:{json.dumps(dict(input))}")


def may_be_edited(item: ToolApprovalItem) -> bool:
    """Tell whether a call that waits is a program's own: those of agents behind its tools are not, nor begun ones."""
    mark = getattr(item.raw_item, "id", None)
    return isinstance(mark, str) and mark.startswith(MARK)


MARK = "fc_codemode_"


def new_mark() -> str:
    """Return an id for a call that waits, which nobody can guess who writes the message of a rejection."""
    return f"{MARK}{secrets.token_hex(16)}"


def edited_input(message: str, mark: str) -> Any:
    """Return the edited input in the message of a rejection; None for one that holds none."""
    head = f"{_EDITED}{mark}:"
    return json.loads(message[len(head) :]) if mark.startswith(MARK) and message.startswith(head) else None


AGENT_KIND = "openai-agents/agent"
_MOST_DEEP = 8


def namespace_of(tool_name: str) -> str:
    """Return the namespace of what the agent behind a tool asks for: the SDK wants one that no tool in it is called."""
    return f"agent.{tool_name}"


def ask(paused: Any) -> NoReturn:
    """Pause the program for what the run of an agent waits for."""
    waiting = [
        {"name": str(one.name), "arguments": one.arguments, "may_be_edited": may_be_edited(one)}
        for one in paused.interruptions
    ]
    # Whose run goes on brings its context, and only that one's serializer knows what of it may be kept.
    state = paused.to_state().to_json(context_serializer=_left_out)
    request_interrupt({"kind": AGENT_KIND, "state": state, "waiting": waiting})


def _left_out(_context: Any) -> dict[str, Any]:
    return {}


async def go_on(
    tool: FunctionTool, context: ToolContext[Any], payload: Mapping[str, Any], decisions: Sequence[Mapping[str, Any]]
) -> None:
    """Let the next call of a tool go on with the run of its agent, by what was decided about each of its calls.

    By their order: models repeat the ids of calls, and several agents may wait in one run.
    """
    state: Any = await RunState.from_json(sdk.agent_behind(tool), dict(payload["state"]))
    for item, said in zip(state.get_interruptions(), decisions, strict=True):
        if said.get("input") is not None:
            approve(state, item, input=said["input"])
        elif said.get("approved") is True:
            state.approve(item, always_approve=said.get("always") is True)
        else:
            message = said.get("message")
            state.reject(item, always_reject=said.get("always") is True, rejection_message=message or None)
    sdk.keep_paused(context, state)


async def names_behind(
    tools: Iterable[FunctionTool], run_context: RunContextWrapper[Any], depth: int = 0
) -> AsyncIterator[str]:
    """Yield the names of the tools that agents behind these may ask about, and those behind them."""
    for tool in tools:
        agent = sdk.agent_behind(tool)
        if agent is None or depth > _MOST_DEEP:
            continue
        found = [one for one in await _tools_of(agent, run_context) if isinstance(one, FunctionTool)]
        for one in found:
            yield one.name
        async for name in names_behind(found, run_context, depth + 1):
            yield name


async def _tools_of(agent: Agent[Any], run_context: RunContextWrapper[Any]) -> list[Any]:
    try:
        return await agent.get_all_tools(run_context)
    except Exception:  # noqa: BLE001 - a server of an agent that may never be called is away
        return list(agent.tools)
