"""Approval rules, the questions that they ask, and the meaning of answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, Protocol, TypeAlias, Union, cast

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, WithJsonSchema, create_model
from typing_extensions import TypedDict

from codemode import CodeModeToolError, Interrupt, PendingRequest, ToolCallContext
from codemode import Tool as ProgramTool
from codemode.plugins import PreparedTool, ToolSelection, copy_json, protect_integers, restore_integers

from .arguments import ValidatedArguments, find_changed_path
from .conversion import NeedsApproval, is_destructive, make_tool_call


class CallLimits(Protocol):
    """Limits on the nested calls of a program."""

    def count_call_or_stop(self, tool: str, call_id: str) -> None:
        """Count a call that is about to run. Raises if it exceeds a limit."""
        ...

    def restore_counted_calls(self, calls: Mapping[str, str]) -> None:
        """Count calls of a process that died: tool names by call id."""
        ...

    @property
    def segment_record_fields(self) -> dict[str, Any]:
        """The calls of a segment, for its record."""
        ...

    def make_stop_result_or_raise(self, interrupt: Interrupt) -> tuple[str, Any] | None:
        """Return the final text and a command for a program stopped by a limit; None if it only waits."""
        ...

    def make_call_count_commands(self, records: Sequence[Mapping[str, Any]], tool_call_id: str) -> list[Any]:
        """Return the commands that report the calls of all segments to the graph."""
        ...


class ToolCaller(Protocol):
    """How nested calls run, and their limits."""

    @property
    def limits(self) -> CallLimits | None:
        """The limits, or None."""
        ...

    def may_be_intercepted(self) -> bool:
        """Return whether middleware may answer a call instead of its tool."""
        ...

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """Run the call; return LangChain's result: a message, a command, or a list of them."""
        ...

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """Do the same without blocking."""
        ...


class DirectToolCaller:
    """Calls the tool itself."""

    limits = None

    def may_be_intercepted(self) -> bool:
        """See `ToolCaller.may_be_intercepted`."""
        return False

    def call(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `ToolCaller.call`."""
        return tool.invoke(call, config)

    async def acall(self, tool: BaseTool, call: ToolCall, config: RunnableConfig) -> Any:
        """See `ToolCaller.acall`."""
        return await tool.ainvoke(call, config)


DecisionType = Literal["approve", "edit", "reject", "respond"]
ALL_DECISIONS: tuple[DecisionType, ...] = ("approve", "edit", "reject", "respond")
_MAX_SCHEMA_PARTS = 5_000


class ApproveDecision(TypedDict):
    """The call runs as displayed."""

    type: Literal["approve"]


class RejectDecision(TypedDict):
    """The call does not run; the program gets an error with the message."""

    type: Literal["reject"]
    message: NotRequired[str]


class RespondDecision(TypedDict):
    """The call does not run; the program gets the message as its result."""

    type: Literal["respond"]
    message: str


def make_decision_type(
    name: str, allowed_decisions: tuple[DecisionType, ...], tool: PreparedTool | None = None, displayed: Any = None
) -> Any:
    """Return the type against which LangGraph validates an answer before it saves it."""
    types: dict[str, Any] = {"approve": ApproveDecision, "reject": RejectDecision, "respond": RespondDecision}
    if "edit" in allowed_decisions:
        types["edit"] = _make_edit_decision_type(name, tool, displayed)
    members = tuple(types[decision] for decision in dict.fromkeys(allowed_decisions))
    union: Any = members[0] if len(members) == 1 else Annotated[Union[members], Discriminator("type")]  # noqa: UP007
    return Annotated[union, BeforeValidator(_unwrap_single_decision), AfterValidator(_decision_to_dict)]


def _make_edit_decision_type(name: str, tool: PreparedTool | None, displayed: Any) -> Any:
    schema = {"type": "object"} if tool is None else _inline_references(tool.input_json_schema)
    args = Annotated[
        dict[str, Any], AfterValidator(_make_edit_validator(tool, displayed)), WithJsonSchema(cast("Any", schema))
    ]
    action = create_model("EditedAction", name=(cast("Any", Literal)[name], ...), args=(args, ...))
    return create_model("EditDecision", type=(Literal["edit"], ...), edited_action=(action, ...))


def _inline_references(schema: Any) -> Any:
    """Inline the references of a schema; large or recursive parts become schemas that accept anything."""
    remaining_parts = _MAX_SCHEMA_PARTS

    def expand(schema_part: Any, enclosing: tuple[str, ...]) -> Any:
        nonlocal remaining_parts
        remaining_parts -= 1
        if isinstance(schema_part, list):
            return [expand(value, enclosing) for value in cast("list[Any]", schema_part)]
        if not isinstance(schema_part, dict):
            return schema_part
        fields = cast("dict[str, Any]", schema_part)
        target = fields.get("$ref")
        if isinstance(target, str):
            if target in enclosing or remaining_parts < 0:
                return {}
            rest = {key: value for key, value in fields.items() if key != "$ref"}
            target_schema: Any = expand(
                PreparedTool.resolve_reference({"$ref": target}, schema) or {}, (*enclosing, target)
            )
            return (
                {**cast("dict[str, Any]", target_schema), **rest} if isinstance(target_schema, dict) else target_schema
            )
        return {key: expand(value, enclosing) for key, value in fields.items() if key not in ("$defs", "definitions")}

    return expand(schema, ())


def _make_edit_validator(tool: PreparedTool | None, displayed: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def validate_edited_args(args: dict[str, Any]) -> dict[str, Any]:
        if tool is not None:
            try:
                _require_unchanged_input(tool, restore_integers(args, displayed), displayed)
            except CodeModeToolError as error:
                raise ValueError(error.message) from error
        return args

    return validate_edited_args


def _require_unchanged_input(tool: PreparedTool, args: dict[str, Any], displayed: Any) -> None:
    """Raise `ValueError` if the tool would run with anything but the edited input and defaults."""
    validated = tool.validate_edited_input(args, displayed)
    changed_path = find_changed_path(args, validated) or find_changed_path(
        validated, tool.validate_edited_input(validated, displayed)
    )
    if changed_path is not None:
        raise ValueError(
            f"{changed_path} would change: tool {tool.name!r} makes something else of it, and that would run"
        )


def _decision_to_dict(decision: Any) -> Any:
    return decision.model_dump(mode="json") if isinstance(decision, BaseModel) else decision


def _unwrap_single_decision(answer: Any) -> Any:
    """Unwrap ``{"decisions": [decision]}``, the form of answers in batched mode."""
    if isinstance(answer, dict) and set(cast("dict[str, Any]", answer)) == {"decisions"}:
        decisions = cast("dict[str, Any]", answer)["decisions"]
        if isinstance(decisions, list) and len(cast("list[Any]", decisions)) == 1:
            return _normalize_inbox_decision(cast("list[Any]", decisions)[0])
    if not isinstance(answer, Mapping | BaseModel):
        raise ValueError('an answer is a decision, such as {"type": "approve"}')  # noqa: TRY004 - pydantic reports those
    return _normalize_inbox_decision(answer)


def _normalize_inbox_decision(decision: Any) -> Any:
    """Convert the decisions of the agent inbox, which sends the text or the edited call as ``args``."""
    match decision:
        case {"type": "edit", "args": {"action": name, "args": args}, **rest} if not rest:
            return {"type": "edit", "edited_action": {"name": name, "args": args}}
        case {"type": "reject" | "respond" as kind, "args": str(message), **rest} if not rest:
            return {"type": kind, "message": message}
        case _:
            return decision


# Questions and decisions have the shapes of LangChain's `HumanInTheLoopMiddleware`.

InterruptMode: TypeAlias = Literal["per_call", "batched"]
INTERRUPT_MODES: tuple[InterruptMode, ...] = ("per_call", "batched")
DESTRUCTIVE = "destructive"

ApprovalCheck: TypeAlias = Callable[[dict[str, Any]], bool]


class ApprovalConfig(TypedDict):
    """How calls of one tool are reviewed. ``when``: takes the arguments and returns whether to ask."""

    allowed_decisions: NotRequired[list[DecisionType]]
    description: NotRequired[str | Callable[[str, dict[str, Any]], str]]
    when: NotRequired[ApprovalCheck]


@dataclass(frozen=True, kw_only=True)
class ReviewRule:
    """A rule of another middleware of the agent for one tool; its functions have LangChain's signatures."""

    allowed_decisions: tuple[DecisionType, ...]
    description: Any
    description_prefix: str
    when: Callable[[Any], bool] | None
    is_batched: bool


ApprovalRule: TypeAlias = bool | ApprovalCheck | ApprovalConfig
ApprovalRules: TypeAlias = Mapping[str, ApprovalRule] | Callable[[str, dict[str, Any]], bool] | Literal["destructive"]
_NO_ANNOTATIONS: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question to a person about a pending request.

    ``key``: identifies the question in its outer call. ``value``: what is displayed. ``response_schema``: type of the
    answer, None for any. ``inside``: id of the interrupt in a graph inside the nested call. ``members``: the questions
    that a batch combines.
    """

    key: str
    request: PendingRequest
    value: Any
    response_schema: Any = None
    inside: str = ""
    members: tuple[Question, ...] = ()


class ApprovalPolicy:
    """Approval rules for one set of tools. Raises `ValueError` for a malformed rule or mode."""

    def __init__(self, rules: ApprovalRules | None, interrupt_mode: InterruptMode | None = "per_call") -> None:
        if interrupt_mode not in (None, *INTERRUPT_MODES):
            raise ValueError(f"interrupt_mode must be one of {', '.join(INTERRUPT_MODES)}, got {interrupt_mode!r}")
        self._mode = interrupt_mode
        self._adopted_rules: dict[str, ReviewRule] = {}
        self._reviewed_names: frozenset[str] | None = None  # reviewed in every agent; None before the first agent
        self.uses_declared_hints = rules == DESTRUCTIVE  # rules come from the tools' hints
        if not (
            rules is None or self.uses_declared_hints or callable(rules) or isinstance(cast("Any", rules), Mapping)
        ):
            raise ValueError(
                'approve must map names of tools to rules, such as {"delete_file": True}, or be a function,'
                f" {DESTRUCTIVE!r} (what tools declare of themselves) or None, got {rules!r}"
            )
        self._rule_function = rules if callable(rules) else None
        self._rules: dict[str, ApprovalRule] = dict(cast("Any", rules)) if isinstance(rules, Mapping) else {}
        for name, rule in self._rules.items():
            _require_valid_rule(name, rule)

    @property
    def is_batched(self) -> bool:
        """True if all pending calls are one question: by ``interrupt_mode``, else as an adopted review does."""
        if self._mode is None:
            return any(rule.is_batched for rule in self._adopted_rules.values())
        return self._mode == "batched"

    @property
    def asks_once_per_step(self) -> bool:
        """True if a review asks about all calls of a step at once, so that only one question may be pending."""
        return self._mode is None and self.is_batched

    @property
    def rule_names(self) -> frozenset[str]:
        """The names that have rules."""
        return frozenset(self._rules)

    def describe_unmatched_rules(
        self, valid_names: Collection[str], may_exist: Callable[[str], bool] | None = None
    ) -> list[str]:
        """Return a message for each rule that names an unknown tool.

        ``may_exist``: returns whether a name may be that of a tool not listed yet.
        """
        missing = sorted(self.rule_names.difference(valid_names))
        return [
            ToolSelection.describe_missing_name("approve", name, valid_names)
            for name in missing
            if may_exist is None or not may_exist(name)
        ]

    def require_rule_names_exist(
        self, valid_names: Collection[str], may_exist: Callable[[str], bool] | None = None
    ) -> None:
        """Raise `ValueError` for a rule that names an unknown tool."""
        for message in self.describe_unmatched_rules(valid_names, may_exist):
            raise ValueError(message)

    def reject_rules_for_non_program_tools(
        self,
        kept_names: Collection[str],
        is_surface_tool: Callable[[str], bool],
        is_callable: Callable[[str], bool] = ProgramTool.is_callable_name,
        keep_option: str = "keep",
    ) -> None:
        """Raise `ValueError` for a rule about a kept tool, a surface tool or a tool that programs cannot call.

        ``is_surface_tool``: whether a name is that of a tool that runs programs. ``is_callable``: whether programs can
        call a tool of this name.
        """
        gated_names = [name for name, rule in self._rules.items() if rule is not False]
        for name in gated_names:
            if is_surface_tool(name):
                raise ValueError(
                    f"approve names {name!r}, and is for the calls of its programs: to review whole programs, list a"
                    " HumanInTheLoopMiddleware"
                )
            if not is_callable(name):
                raise ValueError(f"approve names {name!r}, which no program can call and the model calls directly")
        overlap = sorted(set(gated_names) & set(kept_names))
        if overlap:
            raise ValueError(
                f"{overlap[0]!r} is in both {keep_option} and approve: only calls from programs wait for a person, so a"
                " tool that needs approval cannot be kept"
            )

    def reject_rules_for_direct_tools(self, names: Collection[str]) -> None:
        """Raise `ValueError` for a rule about a tool that the model calls directly: such a call cannot wait."""
        if gated_names := sorted(name for name in names if self._rules.get(name, False) is not False):
            raise ValueError(
                f"approve names {gated_names[0]!r}, which the model calls directly by tools and keep: only calls from"
                " programs wait for a person"
            )

    def reject_rules_for_unindexed_tools(self, names: Collection[str]) -> None:
        """Raise `ValueError` for a rule about a tool outside of CodeCall's index, whose calls cannot wait."""
        if gated_names := sorted(name for name in names if self._rules.get(name, False) is not False):
            raise ValueError(
                f"approve names {gated_names[0]!r}, which CodeCall does not index and the model calls directly: only"
                " calls from scripts and invoke wait for a person"
            )

    def adopt_review_rules(self, rules: Mapping[str, ReviewRule]) -> bool:
        """Adopt rules of another agent's reviews where there is no own rule; return whether that changed anything.

        Raises `ValueError` for one about a tool whose own rule is False.
        """
        for name in rules:
            if self._rules.get(name) is False:
                raise ValueError(f"approve[{name!r}] is False, but other middleware reviews this tool")
        # True alone leaves the allowed decisions to the review.
        rule_names = {
            name for name, rule in self._rules.items() if rule is not True and self._get_condition(name) is True
        }
        new_rules = {
            name: rule for name, rule in rules.items() if name not in self._adopted_rules and name not in rule_names
        }
        self._adopted_rules.update(new_rules)
        adopted_names = frozenset(name for name in rules if name in self._adopted_rules)
        self._reviewed_names = adopted_names if self._reviewed_names is None else self._reviewed_names & adopted_names
        return bool(new_rules)

    def is_reviewed_by_middleware(self, name: str) -> bool:
        """Return whether other middleware of every agent reviews direct calls of this tool."""
        return name in (self._reviewed_names or ())

    def may_need_approval(self, name: str, annotations: Mapping[str, Any] = _NO_ANNOTATIONS) -> bool:
        """Return whether some call of a tool with these hints may need approval."""
        if name in self._adopted_rules:
            return True
        if self.uses_declared_hints:
            return is_destructive(annotations)
        return self._rule_function is not None or self._rules.get(name, False) is not False

    def call_needs_approval(
        self, name: str, arguments: dict[str, Any], annotations: Mapping[str, Any] = _NO_ANNOTATIONS
    ) -> bool:
        """Return whether one call with validated arguments needs approval."""
        if name in self._adopted_rules:
            return True
        if self.uses_declared_hints:
            return is_destructive(annotations)
        if self._rule_function is not None:
            return bool(self._rule_function(name, arguments))
        when = self._get_condition(name)
        return when if isinstance(when, bool) else bool(when(arguments))

    def make_approval_check(self, name: str, get_declared: Callable[[], Mapping[str, Any]]) -> NeedsApproval:
        """Return a tool's ``needs_approval`` for the core; ``get_declared`` returns its current hints."""
        if (review := self._adopted_rules.get(name)) is not None:
            return True if review.when is None else partial(_needs_approval_by_review, review.when, name)
        if self.uses_declared_hints:
            return partial(_needs_approval_by_hints, get_declared)
        if self._rule_function is not None:
            return partial(_needs_approval_by_rule_function, self._rule_function, name)
        when = self._get_condition(name)
        return when if isinstance(when, bool) else partial(_needs_approval_by_condition, when)

    def _get_condition(self, name: str) -> bool | ApprovalCheck:
        rule = self._rules.get(name, False)
        return rule if isinstance(rule, bool) or callable(rule) else rule.get("when", True)

    def find_rule_name_or_last(self, *names: str) -> str:
        """Return the name of a tool that has a rule; the last name if none has."""
        return next((name for name in names if name in self._rules or name in self._adopted_rules), names[-1])

    def make_question(
        self, request: PendingRequest, tool: PreparedTool | None, name: str, caller: ToolCaller | None = None
    ) -> Question:
        """Return the question about one call; ``name`` is the displayed tool name."""
        rule_name = self.find_rule_name_or_last(request.tool_name, name)
        review, rule = self._adopted_rules.get(rule_name), self._rules.get(rule_name)
        prefix = "Tool execution requires approval"
        if review is not None:
            allowed_decisions, description, prefix = (
                review.allowed_decisions,
                review.description,
                review.description_prefix,
            )
            if callable(description):
                call = make_tool_call(name, copy_json(request.input), request.tool_call_id)
                review_request = cast("Any", caller).make_review_request(call)
                description = description(call, review_request.state, review_request.runtime)
        else:
            config: ApprovalConfig = cast("ApprovalConfig", rule) if isinstance(rule, Mapping) else {}
            allowed_decisions = tuple(config.get("allowed_decisions", ALL_DECISIONS))
            description = config.get("description")
            if callable(description):
                description = description(name, request.input)
        if description is None:
            description = f"{prefix}\n\nTool: {name}\nArgs: {request.input}"
        action = {"name": name, "args": request.input, "description": description}
        # Both shapes of HumanInTheLoopMiddleware: `per_call`, and `batched` with a single action.
        value = {
            "type": "tool_approval",
            "tool_call_id": request.tool_call_id,
            **action,
            "action_requests": [action],
            "review_configs": [{"action_name": name, "allowed_decisions": list(allowed_decisions)}],
        }
        schema = make_decision_type(name, allowed_decisions, tool, request.input)
        # Browsers and checkpoints lose large integers.
        displayed = protect_integers(value)
        return Question(key=request.interrupt_id, request=request, value=displayed, response_schema=schema)


def to_resolution(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the core's resolution for a decision; "respond" approves the call and replaces its result."""
    kind, message = decision["type"], decision.get("message")
    if kind == "reject":
        return {"approved": False, **({"reason": message} if message else {})}
    if kind == "edit":
        return {"approved": True, "input": decision["edited_action"]["args"]}
    return {"approved": True, **({"reason": f"respond: {message}"} if kind == "respond" else {})}


def _needs_approval_by_hints(get_declared: Callable[[], Mapping[str, Any]], _arguments: ValidatedArguments) -> bool:
    return is_destructive(get_declared())


def _needs_approval_by_review(
    when: Callable[[Any], bool], name: str, arguments: ValidatedArguments, context: ToolCallContext
) -> bool:
    run = context.context
    return bool(
        when(run.caller.make_review_request(make_tool_call(name, arguments.copy(), context.tool_call_id), run.config))
    )


def _needs_approval_by_rule_function(
    rule_function: Callable[[str, dict[str, Any]], bool], name: str, arguments: ValidatedArguments
) -> bool:
    return rule_function(name, arguments.copy())


def _needs_approval_by_condition(when: ApprovalCheck, arguments: ValidatedArguments) -> bool:
    return when(arguments.copy())


def _require_valid_rule(name: Any, rule: Any) -> None:
    if not isinstance(name, str):
        example_name = getattr(name, "name", None) or getattr(name, "__name__", None) or "delete_file"
        raise ValueError(f"approve names tools by text, got {name!r}: write {{{example_name!r}: ...}}")  # noqa: TRY004 - as below
    if isinstance(rule, bool) or callable(rule):
        return
    if not isinstance(rule, Mapping) or not set(cast("Any", rule)) <= {"allowed_decisions", "description", "when"}:
        raise ValueError(f"approve[{name!r}] must be True, False, a function or an ApprovalConfig, got {rule!r}")
    allowed_decisions = cast("Any", rule).get("allowed_decisions", ALL_DECISIONS)
    if not allowed_decisions or not set(allowed_decisions) <= set(ALL_DECISIONS):
        raise ValueError(f"approve[{name!r}]['allowed_decisions'] must name some of {', '.join(ALL_DECISIONS)}")
