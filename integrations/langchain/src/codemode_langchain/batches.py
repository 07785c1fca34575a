"""Several questions in one interrupt, in the shape of `HumanInTheLoopMiddleware`'s batched mode. Asks nobody itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, create_model

from codemode.plugins import with_texts, without_texts

from .approvals import Question
from .graph import digest

_OWN = ("tool_approval", "unknown_outcome")


def batched(questions: Sequence[Question]) -> list[Question]:
    """Return the questions with all that ask about calls in one, last; its ``members`` are those.

    What a tool asks in another shape stays by itself.
    """
    members = tuple(one for one in questions if _actions_of(one))
    if not members:
        return [*questions]
    shown = [_exact(one) for one in members]
    value = {
        "action_requests": [action for one in shown for action in one["action_requests"]],
        "review_configs": [config for one in shown for config in one["review_configs"]],
    }
    together = Question(
        key=f"batch:{digest([one.key for one in members])}",
        request=members[0].request,
        value=with_texts(value),
        response_schema=_decisions(members),
        members=members,
    )
    return [*(one for one in questions if one not in members), together]


def taken_apart(asked: Iterable[Question], answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers by the keys of single questions, of answers by the keys of what was asked."""
    found: dict[str, Any] = {}
    for one in asked:
        if one.key not in answers:
            continue
        if not one.members:
            found[one.key] = answers[one.key]
            continue
        left = list(answers[one.key]["decisions"])
        for member in one.members:
            count = len(_actions_of(member))
            mine, left = left[:count], left[count:]
            found[member.key] = mine[0] if _is_own(member) else {"decisions": mine}
    return found


def waiting_of(asked: Iterable[Question], waiting: Mapping[str, Any]) -> dict[str, Any]:
    """Return what waits by the keys of single questions, of what waits by the keys of what was asked."""
    return {
        key: waiting[one.key]
        for one in asked
        if one.key in waiting
        for key in ([member.key for member in one.members] or [one.key])
    }


def _actions_of(question: Question) -> list[Any]:
    """Return the calls that a question is about, with a review for each; none of a question of another shape."""
    value: Any = question.value
    if not isinstance(value, dict):
        return []
    actions, configs = (cast("dict[str, Any]", value).get(key) for key in ("action_requests", "review_configs"))
    if not isinstance(actions, list) or not isinstance(configs, list):
        return []
    asked, reviews = cast("list[Any]", actions), cast("list[Any]", configs)
    # What a tool asks may look like anything: one review too few, and those of all later calls would be another's.
    is_whole = len(asked) == len(reviews) and all(isinstance(one, dict) for one in [*asked, *reviews])
    return asked if is_whole else []


def _is_own(question: Question) -> bool:
    """Tell whether the question was worded here, or by a codeMode inside; what else a tool asks is no decision."""
    return question.response_schema is not None and question.value.get("type") in _OWN


def _exact(question: Question) -> dict[str, Any]:
    value = cast("dict[str, Any]", question.value)
    return without_texts(value) if _is_own(question) and "bigIntegers" in value else value


def _decisions(members: Sequence[Question]) -> Any:
    """Return the type of an answer: one decision for each call, in their order."""
    each = [one.response_schema if _is_own(one) else dict[str, Any] for one in members for _ in _actions_of(one)]
    in_order: Any = cast("Any", tuple).__class_getitem__(tuple(each))
    response = create_model("HITLResponse", decisions=(in_order, ...))
    return Annotated[response, BeforeValidator(partial(_many, len(each))), AfterValidator(_plain)]


def _many(count: int, answer: Any) -> Any:
    if count == 1 and isinstance(answer, Mapping) and "type" in answer:
        return {"decisions": [cast("Any", answer)]}  # as one call is answered where each asks by itself
    if not isinstance(answer, Mapping | BaseModel):
        raise ValueError('an answer is {"decisions": [...]}, one for each call')  # noqa: TRY004 - pydantic reports those
    return cast("Any", answer)


def _plain(response: BaseModel) -> dict[str, Any]:
    return {"decisions": [*cast("Any", response).decisions]}
