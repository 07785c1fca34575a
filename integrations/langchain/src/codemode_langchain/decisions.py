"""What a person may answer about one call: the shapes of LangChain's `HumanInTheLoopMiddleware`, as plain JSON.

Asks nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NotRequired, Union, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, WithJsonSchema, create_model
from typing_extensions import TypedDict

from codemode import CodeModeToolError
from codemode.plugins import PreparedTool, integers_as_in, resolve_reference

from .arguments import difference

DecisionType = Literal["approve", "edit", "reject", "respond"]
ALL_DECISIONS: tuple[DecisionType, ...] = ("approve", "edit", "reject", "respond")
_MAX_SCHEMA_PARTS = 5_000


class ApproveDecision(TypedDict):
    """The call runs as it was shown."""

    type: Literal["approve"]


class RejectDecision(TypedDict):
    """The call does not run; the program gets an error with the message."""

    type: Literal["reject"]
    message: NotRequired[str]


class RespondDecision(TypedDict):
    """The call does not run; the program gets the message as its result."""

    type: Literal["respond"]
    message: str


def decision_type(
    name: str, allowed: tuple[DecisionType, ...], tool: PreparedTool | None = None, shown: Any = None
) -> Any:
    """Return the type that LangGraph checks an answer against before it is saved."""
    types: dict[str, Any] = {"approve": ApproveDecision, "reject": RejectDecision, "respond": RespondDecision}
    if "edit" in allowed:
        types["edit"] = _edit_decision(name, tool, shown)
    members = tuple(types[one] for one in dict.fromkeys(allowed))
    union: Any = members[0] if len(members) == 1 else Annotated[Union[members], Discriminator("type")]  # noqa: UP007
    return Annotated[union, BeforeValidator(_single_decision), AfterValidator(_plain_decision)]


def _edit_decision(name: str, tool: PreparedTool | None, shown: Any) -> Any:
    schema = {"type": "object"} if tool is None else _without_references(tool.input_json_schema)
    args = Annotated[dict[str, Any], AfterValidator(_fits(tool, shown)), WithJsonSchema(cast("Any", schema))]
    action = create_model("EditedAction", name=(cast("Any", Literal)[name], ...), args=(args, ...))
    return create_model("EditDecision", type=(Literal["edit"], ...), edited_action=(action, ...))


def _without_references(schema: Any) -> Any:
    """Write out what a schema refers to, for its place in another schema: anything where it is too much or endless."""
    left = _MAX_SCHEMA_PARTS

    def written(part: Any, inside: tuple[str, ...]) -> Any:
        nonlocal left
        left -= 1
        if isinstance(part, list):
            return [written(one, inside) for one in cast("list[Any]", part)]
        if not isinstance(part, dict):
            return part
        found = cast("dict[str, Any]", part)
        target = found.get("$ref")
        if isinstance(target, str):
            if target in inside or left < 0:
                return {}
            rest = {key: one for key, one in found.items() if key != "$ref"}
            meant: Any = written(resolve_reference({"$ref": target}, schema) or {}, (*inside, target))
            return {**cast("dict[str, Any]", meant), **rest} if isinstance(meant, dict) else meant
        return {key: written(one, inside) for key, one in found.items() if key not in ("$defs", "definitions")}

    return written(schema, ())


def _fits(tool: PreparedTool | None, shown: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def check(args: dict[str, Any]) -> dict[str, Any]:
        if tool is not None:
            try:
                _require_kept(tool, integers_as_in(shown, args))
            except CodeModeToolError as error:
                raise ValueError(error.message) from error
        return args

    return check


def _require_kept(tool: PreparedTool, args: dict[str, Any]) -> None:
    """Raise `ValueError` when the tool would not run with just what a person has written, completed by defaults."""
    found = tool.validate_input(args).json_value
    place = difference(args, found) or difference(found, tool.validate_input(found).json_value)
    if place is not None:
        raise ValueError(f"{place} would change: tool {tool.name!r} makes something else of it, and that would run")


def _plain_decision(decision: Any) -> Any:
    return decision.model_dump(mode="json") if isinstance(decision, BaseModel) else decision


def _single_decision(answer: Any) -> Any:
    """Take ``{"decisions": [decision]}`` too, as answers to the batched shape are written."""
    if isinstance(answer, dict) and set(cast("dict[str, Any]", answer)) == {"decisions"}:
        decisions = cast("dict[str, Any]", answer)["decisions"]
        if isinstance(decisions, list) and len(cast("list[Any]", decisions)) == 1:
            return _of_inbox(cast("list[Any]", decisions)[0])
    if not isinstance(answer, Mapping | BaseModel):
        raise ValueError('an answer is a decision, such as {"type": "approve"}')  # noqa: TRY004 - pydantic reports those
    return _of_inbox(answer)


def _of_inbox(decision: Any) -> Any:
    """Take what the agent inbox sends too: the text or the edited call as ``args``."""
    match decision:
        case {"type": "edit", "args": {"action": name, "args": args}, **rest} if not rest:
            return {"type": "edit", "edited_action": {"name": name, "args": args}}
        case {"type": "reject" | "respond" as kind, "args": str(said), **rest} if not rest:
            return {"type": kind, "message": said}
        case _:
            return decision
