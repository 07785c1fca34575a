"""Select the tools of programs and of the model, and detect conflicting middleware."""

from __future__ import annotations

import copy
import inspect
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

from langchain.agents import middleware as built_in
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ToolCallLimitMiddleware
from langchain.agents.middleware.types import AgentState, ModelRequest, PrivateStateAttr
from langchain.agents.structured_output import AutoStrategy, ToolStrategy
from langchain_core.tools import BaseTool
from typing_extensions import TypedDict

from codemode import Tool as ProgramTool
from codemode.plugins import ToolSelection, create_fork_safe_lock
from codemode.types import InvalidConfigError

from .approvals import ReviewRule
from .conversion import get_annotations
from .graph_state import SHOWN_TOOLS_CHANNEL, get_graph_state, keep_latest_value, merge_values_and_drop_none

_MAX_REMEMBERED_STEPS = 256


class StepToolNames(TypedDict):
    """The tool names of one step: ``programs`` for programs, ``native`` for direct calls. Stored in the state."""

    step: str
    programs: list[str]
    native: list[str]


class CodeModeState(AgentState[Any]):
    """The agent's state with private channels for programs.

    The tool names of the last step, the state of programs, counts of nested calls, by outer call id, that call limits
    have not counted yet, and the message of a limit that ended the run.
    """

    code_mode_shown: NotRequired[Annotated[StepToolNames, PrivateStateAttr]]
    code_mode_state: NotRequired[Annotated[dict[str, str | None], PrivateStateAttr, merge_values_and_drop_none]]
    code_mode_calls: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, merge_values_and_drop_none]]
    code_mode_end: NotRequired[Annotated[str | None, PrivateStateAttr, keep_latest_value]]


class StepToolRecorder:
    """Records the tools of each step, and stores those that are not registered with the agent."""

    def __init__(self) -> None:
        self._steps: OrderedDict[str, dict[str, BaseTool]] = OrderedDict()
        self._lock = create_fork_safe_lock()

    def record_step(
        self, program_tools: Sequence[BaseTool], direct_tools: Sequence[Any], registered_names: Collection[str]
    ) -> dict[str, StepToolNames]:
        """Record a step's tools and return the state update.

        ``registered_names``: the agent's own tools, which requests carry themselves.
        """
        step = secrets.token_hex(8)
        step_tools = {tool.name: tool for tool in program_tools if tool.name not in registered_names}
        with self._lock:
            if step_tools:
                self._steps[step] = step_tools
            while len(self._steps) > _MAX_REMEMBERED_STEPS:
                self._steps.popitem(last=False)
        names = [name for tool in direct_tools if (name := get_tool_name(tool)) is not None]
        return {
            SHOWN_TOOLS_CHANNEL: StepToolNames(step=step, programs=[tool.name for tool in program_tools], native=names)
        }

    def list_callable_tools(self, request: Any, registered: Mapping[str, BaseTool]) -> list[BaseTool]:
        """Return the tools that programs of the last step may call; all registered ones without a recorded step.

        A registered tool takes precedence over a tool of the step with the same name, as in LangChain.
        """
        visible_tools = get_step_tool_names(request)
        if visible_tools is None:
            return list(registered.values())
        with self._lock:
            step_tools = self._steps.get(visible_tools["step"], {})
        tools = {**step_tools, **registered}
        return [tools[name] for name in visible_tools["programs"] if name in tools]


def get_step_tool_names(request: Any) -> StepToolNames | None:
    """Return the tool names of an agent's last step before a call; None if there was no step."""
    state = get_graph_state(request.runtime.config, request.state)
    return (
        cast("Any", state).get(SHOWN_TOOLS_CHANNEL)
        if isinstance(state, Mapping)
        else getattr(state, SHOWN_TOOLS_CHANNEL, None)
    )


def get_tool_name(tool: Any) -> str | None:
    """Return the name of a tool or of a provider tool's mapping."""
    if not isinstance(tool, Mapping):
        return getattr(tool, "name", None) or getattr(tool, "__name__", None)
    provider_tool = cast("Mapping[str, Any]", tool)
    function = provider_tool.get("function")
    name = provider_tool.get("name", cast("Any", function).get("name") if isinstance(function, Mapping) else None)
    return name if isinstance(name, str) else None


_log = logging.getLogger("codemode.tools")

# Middleware by class name, and the consequence if it does not see nested calls; some LangChain versions lack some.
_WRAPPING_MIDDLEWARE = {
    "AutoModeMiddleware": "they would not be judged",
    "LLMToolEmulator": "they would run for real",
    "ToolRetryMiddleware": "they would not be tried again",
    "ToolErrorMiddleware": "their errors would not be handled",
}


@dataclass(frozen=True, kw_only=True)
class SurfaceMiddlewareSettings:
    """Settings and message texts of one class of `SurfaceMiddleware`.

    ``middleware_name``: class name. ``program_noun``: "programs" or "scripts". ``run_tool_name``: tool that runs them.
    ``call_limit_option``: option that limits calls per program. ``name_conflict_message``: message for another tool
    with a surface tool's name. ``is_surface_tool_name``: whether a name is reserved. ``is_callable_name``: whether
    programs can call a tool of this name. ``keep_option``: option with the direct tools. ``adopts_reviews``: reviews of
    the model's calls apply to programs too. ``counts_calls``: call limits count nested calls.
    """

    middleware_name: str
    program_noun: str
    run_tool_name: str
    call_limit_option: str
    name_conflict_message: str
    is_surface_tool_name: Callable[[str], bool]
    is_callable_name: Callable[[str], bool] = ProgramTool.is_callable_name
    keep_option: str = "keep"
    adopts_reviews: bool = False
    counts_calls: bool = True


def reject_second_surface(settings: Sequence[SurfaceMiddlewareSettings]) -> None:
    """Raise `ValueError` if an agent has more than one surface middleware."""
    first_kind, *other_kinds = [item.middleware_name for item in settings] or [""]
    if first_kind in other_kinds:
        raise ValueError(
            f"the agent has {first_kind} twice, and only one would run the programs: use one, with the rules of both"
        )
    if other_kinds:
        raise ValueError(
            f"the agent has {first_kind} and {other_kinds[0]}, which replace the same tools by different rules. Use one"
            " of them"
        )


def check_order_and_collect_review_rules(
    own: AgentMiddleware[Any, Any, Any],
    middleware: Sequence[Any],
    direct_names: Iterable[str],
    settings: SurfaceMiddlewareSettings,
) -> dict[str, ReviewRule]:
    """Return the rules of reviews that do not see nested calls, by tool name.

    Raises `ValueError` for middleware of the agent that must see nested calls and does not. ``direct_names``: tools
    that only the model calls.
    """
    rules = dict[str, ReviewRule]()
    surface_index = next(index for index, item in enumerate(middleware) if item is own)
    direct_calls = _DirectTools(frozenset(direct_names), settings.is_callable_name)
    for index, item in enumerate(middleware):
        if isinstance(item, HumanInTheLoopMiddleware):
            rules |= _collect_review_rules_or_raise(item, direct_calls, settings, is_before=index < surface_index)
            continue
        for review in () if item is own else _find_nested_review_middleware(item):
            rules |= _collect_review_rules_or_raise(review, direct_calls, settings, is_before=index < surface_index)
        if isinstance(item, ToolCallLimitMiddleware):
            if not settings.counts_calls:
                _reject_limit_on_program_tools(item, direct_calls, settings)
        elif index < surface_index:
            _require_listed_after_surface(item, direct_calls, settings)
    return rules


def _collect_review_rules_or_raise(
    review: Any, direct_calls: _DirectTools, settings: SurfaceMiddlewareSettings, *, is_before: bool
) -> dict[str, ReviewRule]:
    gated_names = direct_calls.find_program_only_names(review.interrupt_on)
    if not gated_names:
        return {}
    is_batched = getattr(review, "interrupt_mode", "batched") != "per_call"
    if settings.adopts_reviews and type(review) is HumanInTheLoopMiddleware and (is_batched or is_before):
        return {name: _to_review_rule(review, review.interrupt_on[name], is_batched=is_batched) for name in gated_names}
    if is_batched:
        raise ValueError(
            f"HumanInTheLoopMiddleware gates {', '.join(gated_names)} in its batched mode, which never sees calls made"
            " by a program: they would run without approval. Give it interrupt_mode='per_call' and list it after"
            f" {settings.middleware_name}, or use {settings.middleware_name}(approve=...) instead."
        )
    if is_before:
        raise ValueError(
            f"HumanInTheLoopMiddleware gates {', '.join(gated_names)} and is listed before {settings.middleware_name},"
            " where it never sees calls made by a program: they would run without approval. List it after."
        )
    return {}


def _find_nested_review_middleware(middleware: Any) -> list[Any]:
    """Return the reviews in a middleware's attributes, to which it may delegate."""
    attribute_values: Iterable[Any] = getattr(middleware, "__dict__", {}).values()
    parts = [
        part
        for value in attribute_values
        for part in (cast("Any", value) if isinstance(value, list | tuple) else (value,))
    ]
    return [part for part in parts if isinstance(part, HumanInTheLoopMiddleware)]


def _to_review_rule(review: Any, rule: Mapping[str, Any], *, is_batched: bool) -> ReviewRule:
    return ReviewRule(
        allowed_decisions=tuple(rule["allowed_decisions"]),
        description=rule.get("description"),
        description_prefix=review.description_prefix,
        when=rule.get("when"),
        is_batched=is_batched,
    )


def _reject_limit_on_program_tools(limit: Any, direct_calls: _DirectTools, settings: SurfaceMiddlewareSettings) -> None:
    """Raise `ValueError` for a limit on program tools: programs may make calls after the outer call returned."""
    if limit.tool_name is not None and not direct_calls.find_program_only_names([limit.tool_name]):
        return
    limited = "all tools" if limit.tool_name is None else repr(limit.tool_name)
    name = settings.middleware_name
    raise ValueError(
        f"ToolCallLimitMiddleware limits {limited}, and never counts calls made by a program: the limit would not hold."
        f" Limit programs with ToolCallLimitMiddleware(tool_name={settings.run_tool_name!r}, ...), and the calls of"
        f" each with {name}(options={settings.call_limit_option}); limits still apply to tools in"
        f" {name}({settings.keep_option}=[...])."
    )


def _require_listed_after_surface(
    middleware: Any, direct_calls: _DirectTools, settings: SurfaceMiddlewareSettings
) -> None:
    for name, loss in _WRAPPING_MIDDLEWARE.items():
        if isinstance(middleware, getattr(built_in, name, ())) and (
            missed_names := direct_calls.find_program_only_names(_get_configured_tool_names(middleware))
        ):
            raise ValueError(
                f"{name} is listed before {settings.middleware_name}, where it never sees calls of"
                f" {', '.join(missed_names)} made by a program: {loss}. List it after."
            )


def _get_configured_tool_names(middleware: Any) -> Iterable[str]:
    configured_tools = getattr(
        getattr(middleware, "config", None), "tools", ()
    )  # as configured, before conversion to tools
    names = {(name if isinstance(name, str) else name.name).strip() for name in cast("Iterable[Any]", configured_tools)}
    return names or getattr(middleware, "tools_to_emulate", None) or getattr(middleware, "_tool_filter", None) or ()


def warn_about_unreviewed_sub_agents(
    middleware: Sequence[Any],
    may_need_approval: Callable[..., bool],
    settings: SurfaceMiddlewareSettings,
    middleware_class: type,
) -> None:
    """Log a warning for sub-agents whose tools need approval in the agent itself but not in the sub-agent.

    A sub-agent with a ``middleware_class`` has its own rules.
    """
    for item in middleware:
        for spec in cast("Sequence[Any]", getattr(item, "_subagents", None) or ()):
            if ungated_names := sorted(
                name
                for name, tool in _list_unreviewed_tools(spec, middleware_class).items()
                if may_need_approval(name, _get_tool_annotations(tool))
            ):
                _log.warning(
                    "sub-agent %r runs %s without approval: approve is the rule of one agent. Give the sub-agent"
                    " interrupt_on, or a %s(approve=...) of its own",
                    spec.get("name"),
                    ", ".join(ungated_names),
                    settings.middleware_name,
                )


def _list_unreviewed_tools(spec: Mapping[str, Any], middleware_class: type) -> dict[str, Any]:
    """Return the tools of a sub-agent that none of its middleware reviews; none for a compiled sub-agent."""
    middleware = spec.get("middleware") or ()
    if any(isinstance(item, middleware_class) for item in middleware):
        return {}
    reviewed_names = set(spec.get("interrupt_on") or ())
    for item in middleware:
        reviewed_names |= set(item.interrupt_on) if isinstance(item, HumanInTheLoopMiddleware) else set()
    tools_by_name = {name: item for item in spec.get("tools") or () if (name := get_tool_name(item)) is not None}
    return {name: item for name, item in tools_by_name.items() if name not in reviewed_names}


def _get_tool_annotations(tool: Any) -> Mapping[str, Any]:
    return get_annotations(tool) if isinstance(tool, BaseTool) else {}


@dataclass(frozen=True)
class _DirectTools:
    """The tools that only the model calls: listed by name, or with a name that programs cannot call."""

    direct_names: frozenset[str]
    is_callable: Callable[[str], bool]

    def find_program_only_names(self, names: Iterable[str]) -> list[str]:
        """Return the names that only programs call."""
        return sorted(name for name in set(names) - self.direct_names if self.is_callable(name))


_AGENT_FACTORY_MODULE = "langchain.agents.factory"
_CHECK_ATTRIBUTE = "_codemode_offered"


class AllowedTools:
    """The exact tools of one request, except structured-output tools."""

    def __init__(self, tools: Iterable[Any], response_format: Any, kind: str) -> None:
        self._names = Counter(map(get_model_tool_name, tools))
        self._response_format = response_format
        self._middleware_name = kind

    def require_exact_tools(self, tools: Iterable[Any]) -> None:
        """Raise `InvalidConfigError` (a `ValueError`) if the tools differ."""
        found_names = Counter(map(get_model_tool_name, tools))
        added_names, missing_names = found_names - self._names, self._names - found_names
        if added_names:
            added_names -= Counter(_list_structured_output_tool_names(self._response_format))
        if added_names or missing_names:
            changes = [*(f"adds {name!r}" for name in added_names), *(f"takes {name!r}" for name in missing_names)]
            raise InvalidConfigError(
                f"other middleware {' and '.join(changes)} before the model call, and with {self._middleware_name} the"
                f" model gets exactly {', '.join(self._names)}: list middleware that changes tools before"
                f" {self._middleware_name}"
            )


class ToolCheckedRequest(ModelRequest[Any]):
    """A model request whose tools are checked when the agent calls the model."""

    @classmethod
    def from_request(cls, request: ModelRequest[Any], offer: AllowedTools) -> ToolCheckedRequest:
        """Return a request that is checked for allowed tools."""
        return _add_tool_check(
            cls(**{request_field.name: getattr(request, request_field.name) for request_field in fields(ModelRequest)}),
            offer,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Apply the check to a replaced model too."""
        offer = self.__dict__.get(_CHECK_ATTRIBUTE)
        super().__setattr__(
            name, make_tool_checked_model(value, offer) if name == "model" and offer is not None else value
        )

    def override(self, **overrides: Any) -> ModelRequest[Any]:
        """Return a copy with these fields and the same check."""
        return _add_tool_check(super().override(**overrides), self.__dict__[_CHECK_ATTRIBUTE])


def _add_tool_check(request: Any, offer: AllowedTools) -> Any:
    request.__dict__.update({_CHECK_ATTRIBUTE: offer, "model": make_tool_checked_model(request.model, offer)})
    return request


def make_tool_checked_model(model: Any, offer: AllowedTools) -> Any:
    """Return a copy of a model to which the agent can bind only the allowed tools; other callers are not checked."""
    original: Any = getattr(model, "__dict__", {}).get(_CHECK_ATTRIBUTE, model)
    stand_in = copy.copy(original)

    def bind_tools(tools: Any, **settings: Any) -> Any:
        if _is_called_by_agent():
            offer.require_exact_tools(tools)
        return original.bind_tools(tools, **settings)

    def bind(**settings: Any) -> Any:
        if _is_called_by_agent():
            offer.require_exact_tools(())
        return original.bind(**settings)

    overrides: dict[str, Callable[..., Any] | Any] = {
        "bind_tools": bind_tools,
        "bind": bind,
        _CHECK_ATTRIBUTE: original,
    }
    for name, value in overrides.items():
        object.__setattr__(stand_in, name, value)
    return stand_in


def get_model_tool_name(tool: Any) -> str:
    """Return a tool's name for the model; a provider tool may have only a type."""
    provider_type = cast("Mapping[str, Any]", tool).get("type") if isinstance(tool, Mapping) else None
    return get_tool_name(tool) or (
        provider_type if isinstance(provider_type, str) else type(cast("Any", tool)).__name__
    )


def _is_called_by_agent() -> bool:
    # The caller is `create_agent` or other middleware.
    current_frame = inspect.currentframe()
    caller_frame = None if current_frame is None or current_frame.f_back is None else current_frame.f_back.f_back
    return caller_frame is not None and caller_frame.f_globals.get("__name__") == _AGENT_FACTORY_MODULE


def _list_structured_output_tool_names(response_format: Any) -> list[str]:
    """Return the names of structured-output tools."""
    if response_format is None:
        return []
    schema: Any = cast("Any", response_format).schema if isinstance(response_format, AutoStrategy) else response_format
    strategy: Any = schema if hasattr(schema, "schema_specs") else ToolStrategy(schema)
    return [spec.name for spec in strategy.schema_specs]


ToolSelector: TypeAlias = Collection[str] | Mapping[str, Any] | Callable[[BaseTool], bool]
"""Tool names, a mapping that a tool's metadata must contain, or a predicate that takes a tool."""
ProgramToolSelector: TypeAlias = ToolSelector | Literal["all"]
"""The same, or "all"."""


class AgentToolSelection(ToolSelection):
    """Which tools programs and the model call. Raises `ValueError` for an invalid selector."""

    def __init__(
        self, tools: ProgramToolSelector | None, keep: ToolSelector, settings: SurfaceMiddlewareSettings
    ) -> None:
        super().__init__(tools, keep, keep_path=settings.keep_option)
        self._settings = settings
        for path, selector in (("tools", self.tools), (settings.keep_option, self.keep)):
            if selector is not None and (
                surface_tool_names := sorted(filter(settings.is_surface_tool_name, selector.names))
            ):
                raise ValueError(f"{path} names {surface_tool_names[0]!r}, which replaces all other tools")

    @property
    def keep_option_names(self) -> frozenset[str]:
        """The names in ``keep``."""
        return self.keep.names

    @property
    def direct_only_names(self) -> frozenset[str]:
        """The names in ``keep`` that programs cannot call, regardless of which tool has the name."""
        if self.tools is None:
            return self.keep.names
        return self.keep.names - self.tools.names if self.tools.selects_only_by_name else frozenset()

    def find_tool_routes(self, tool: BaseTool) -> Any:
        """Return where a tool is called; tools without a callable name only directly."""
        if not self._settings.is_callable_name(tool.name):
            return self.ONLY_DIRECTLY
        return self.find_routes(tool.name, tool.metadata, tool)

    def may_be_called_directly(self, name: str, tool: BaseTool | None) -> bool:
        """Return whether the model calls a tool directly; for an unknown tool, by its name."""
        if tool is not None:
            return self.find_tool_routes(tool).directly
        return name in self.keep.names or not self._settings.is_callable_name(name)


def list_tool_names(tools: Iterable[Any]) -> set[str]:
    """Return the names of tools, including their names for the model."""
    return {name for tool in tools for name in (get_tool_name(tool), get_model_tool_name(tool)) if name is not None}
