"""Approval rules for calls of programs and of agents used as tools."""

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

from . import sdk_internals
from .content import make_function_call_async
from .conversion import get_annotations

DESTRUCTIVE = "destructive"
_EDITED_MESSAGE_PREFIX = "codemode:edited:"

ApprovalRule: TypeAlias = bool | Callable[[Any, dict[str, Any], str], Any]
"""A bool, or ``(context, arguments, call_id) -> bool`` like the SDK's ``needs_approval``, sync or async."""
ApprovalRules: TypeAlias = Mapping[str, ApprovalRule] | Callable[[str, dict[str, Any]], bool] | Literal["destructive"]
"""Rules by tool name, ``(name, arguments) -> bool``, or "destructive" (hints of MCP servers)."""


class ApprovalPolicy:
    """Approval rules for one set of tools, in addition to each tool's ``needs_approval``.

    Raises `ValueError` for malformed rules.
    """

    def __init__(self, rules: ApprovalRules | None) -> None:
        self._uses_declared_hints = rules == DESTRUCTIVE
        is_valid = (
            rules is None or self._uses_declared_hints or callable(rules) or isinstance(cast("Any", rules), Mapping)
        )
        if not is_valid:
            raise ValueError(
                'approve must map names of tools to rules, such as {"delete_file": True}, or be a function,'
                f" {DESTRUCTIVE!r} (what tools declare of themselves) or None, got {rules!r}"
            )
        self._rule_function = rules if callable(rules) else None
        self._rules: dict[str, ApprovalRule] = dict(cast("Any", rules)) if isinstance(rules, Mapping) else {}
        for name, rule in self._rules.items():
            if not isinstance(rule, bool) and not callable(rule):
                message = f"approve[{name!r}] must be True, False or a function, got {rule!r}"
                raise ValueError(message)  # noqa: TRY004 - as every wrong option

    def require_existing_names(self, names: Collection[str]) -> None:
        """Raise `ValueError` for a rule that names an unknown tool."""
        for name in sorted(self._rules.keys() - set(names)):
            raise ValueError(ToolSelection.describe_missing_name("approve", name, names))

    def is_gated_by_named_rule(self, name: str) -> bool:
        """Return whether a rule names this tool."""
        return self._rules.get(name, False) is not False

    def may_need_approval(self, tool: FunctionTool) -> bool:
        """Return whether some call of a tool may need approval."""
        return tool.needs_approval is not False or self.has_applicable_rule(tool)

    def has_applicable_rule(self, tool: FunctionTool) -> bool:
        """Return whether one of these rules applies to a tool."""
        if self._rule_function is not None or (self._uses_declared_hints and _is_destructive(tool)):
            return True
        return self.is_gated_by_named_rule(tool.name)

    async def needs_approval(
        self, tool: FunctionTool, context: ToolContext[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        """Return whether this call needs approval."""
        if await sdk_internals.needs_approval(
            tool, context, await make_function_call_async(tool.name, call_id, arguments)
        ):
            return True
        return await self._rule_needs_approval(tool, context, arguments, call_id)

    async def _rule_needs_approval(
        self, tool: FunctionTool, context: Any, arguments: dict[str, Any], call_id: str
    ) -> bool:
        if self._uses_declared_hints and _is_destructive(tool):
            return True
        rule = self._rules.get(tool.name, False)
        answer: Any = rule if isinstance(rule, bool) else rule(context, dict(arguments), call_id)
        if self._rule_function is not None:
            answer = self._rule_function(tool.name, dict(arguments))
        return bool(await answer if inspect.isawaitable(answer) else answer)

    def copy_tool_with_rules(self, tool: FunctionTool) -> FunctionTool:
        """Return a copy of a tool whose ``needs_approval`` includes these rules, for direct calls of the model."""
        if not self.has_applicable_rule(tool) or tool.needs_approval is True:
            return tool
        tool_rule = tool.needs_approval

        async def needs_approval(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
            answer: Any = tool_rule if isinstance(tool_rule, bool) else tool_rule(context, arguments, call_id)
            if await answer if inspect.isawaitable(answer) else answer:
                return True
            return await self._rule_needs_approval(tool, context, arguments, call_id)

        copied = copy.copy(tool)
        copied.needs_approval = needs_approval
        return copied


def _is_destructive(tool: FunctionTool) -> bool:
    """Return whether a tool is declared destructive, or declares neither that nor that it only reads."""
    annotations = get_annotations(tool)
    is_destructive = annotations.get("destructiveHint")
    return is_destructive is True or (is_destructive is None and annotations.get("readOnlyHint") is not True)


async def get_run_wide_decision(context: ToolContext[Any], name: str, call_id: str, arguments: Any) -> bool | None:
    """Return the run's decision about all calls of a tool, or None."""
    item = await _create_approval_item(context, name, call_id, arguments)
    return context.get_approval_status(name, call_id, current_invocation=item)


async def apply_decision_to_all_calls(context: ToolContext[Any], request: PendingRequest, *, is_approved: bool) -> None:
    """Apply a decision about one pending call to all calls of its tool in this run."""
    item = await _create_approval_item(context, request.tool_name, request.interrupt_id, request.input or {})
    if is_approved:
        context.approve_tool(item, always_approve=True)
    else:
        context.reject_tool(item, always_reject=True)


async def _create_approval_item(context: ToolContext[Any], name: str, call_id: str, arguments: Any) -> ToolApprovalItem:
    agent: Any = context.agent
    return ToolApprovalItem(
        agent=agent, raw_item=await make_function_call_async(name, call_id, arguments), tool_name=name
    )


def approve(
    state: RunState[Any, Any],
    item: ToolApprovalItem,
    always_approve: bool = False,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - as the core calls it
) -> None:
    """Approve a pending call of a program, like ``state.approve(item)``, optionally with an edited ``input``.

    The SDK has no edited calls: its state records a rejection whose message carries the input for the paused program.
    Raises `ValueError`, and records nothing, for an ``input`` that the tool does not accept, for one with
    ``always_approve``, and for one of a call that no program of codeMode makes.
    """
    if input is None:
        state.approve(item, always_approve=always_approve)
        return
    if always_approve or not can_edit_input(item):
        raise ValueError("input can be edited for one call of a codeMode program only, one of the interruptions")
    edit_id: str = cast("Any", item.raw_item).id
    input_json = json.dumps(dict(input))
    validate_input = getattr(item.agent, "validate_edited_input", None)  # the agent of a paused program
    if validate_input is not None and item.tool_namespace is None:  # else a call of an inner agent
        validate_input(item.name, json.loads(input_json), json.loads(item.arguments or "{}"))
    state.reject(item, rejection_message=f"{_EDITED_MESSAGE_PREFIX}{edit_id}:{input_json}")


def can_edit_input(item: ToolApprovalItem) -> bool:
    """Return whether a pending call is a program's own: not an inner agent's, and not of unknown outcome."""
    edit_id = getattr(item.raw_item, "id", None)
    return isinstance(edit_id, str) and edit_id.startswith(EDIT_ID_PREFIX)


EDIT_ID_PREFIX = "fc_codemode_"


def create_edit_id() -> str:
    """Return an unguessable id for a pending call: a model or tool must not forge the message of an edit."""
    return f"{EDIT_ID_PREFIX}{secrets.token_hex(16)}"


def parse_edited_input(message: str, edit_id: str) -> Any:
    """Return the edited input in the message of a rejection, or None."""
    prefix = f"{_EDITED_MESSAGE_PREFIX}{edit_id}:"
    return (
        json.loads(message[len(prefix) :])
        if edit_id.startswith(EDIT_ID_PREFIX) and message.startswith(prefix)
        else None
    )


AGENT_PAUSE_KIND = "openai-agents/agent"
_MAX_AGENT_DEPTH = 8


def format_agent_namespace(tool_name: str) -> str:
    """Return the namespace for calls of the agent behind a tool; the SDK requires a name that no tool in it has."""
    return f"agent.{tool_name}"


def pause_for_agent(paused_run: Any) -> NoReturn:
    """Pause the program until the interruptions of an inner agent's run are decided."""
    pending_calls = [
        {"name": str(item.name), "arguments": item.arguments, "can_edit_input": can_edit_input(item)}
        for item in paused_run.interruptions
    ]
    # The resuming run has its own context, and only its serializer knows which parts may be stored.
    state = paused_run.to_state().to_json(context_serializer=_serialize_context_as_empty)
    request_interrupt({"kind": AGENT_PAUSE_KIND, "state": state, "waiting": pending_calls})


def _serialize_context_as_empty(_context: Any) -> dict[str, Any]:
    return {}


async def prepare_agent_resume(
    tool: FunctionTool, context: ToolContext[Any], payload: Mapping[str, Any], decisions: Sequence[Mapping[str, Any]]
) -> None:
    """Make the next call of a tool resume its agent's run with one decision for each pending call.

    Decisions match calls by order: models repeat call ids, and several agents may wait in one run.
    """
    state: Any = await RunState.from_json(sdk_internals.get_tool_agent(tool), dict(payload["state"]))
    for item, decision in zip(state.get_interruptions(), decisions, strict=True):
        if decision.get("input") is not None:
            approve(state, item, input=decision["input"])
        elif decision.get("approved") is True:
            state.approve(item, always_approve=decision.get("always") is True)
        else:
            message = decision.get("message")
            state.reject(item, always_reject=decision.get("always") is True, rejection_message=message or None)
    sdk_internals.set_resume_state(context, state)


async def iterate_agent_tool_names(
    tools: Iterable[FunctionTool], run_context: RunContextWrapper[Any], depth: int = 0
) -> AsyncIterator[str]:
    """Yield the names of tools whose calls agents behind these tools may interrupt for, at any depth."""
    for tool in tools:
        agent = sdk_internals.get_tool_agent(tool)
        if agent is None or depth > _MAX_AGENT_DEPTH:
            continue
        function_tools = [
            function_tool
            for function_tool in await _list_agent_tools(agent, run_context)
            if isinstance(function_tool, FunctionTool)
        ]
        for function_tool in function_tools:
            yield function_tool.name
        async for name in iterate_agent_tool_names(function_tools, run_context, depth + 1):
            yield name


async def _list_agent_tools(agent: Agent[Any], run_context: RunContextWrapper[Any]) -> list[Any]:
    try:
        return await agent.get_all_tools(run_context)
    except Exception:  # noqa: BLE001 - a server of an agent that may never be called is unreachable
        return list(agent.tools)
