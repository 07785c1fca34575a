"""What is shown equals what runs, for random pydantic models with validators."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Optional, cast

import pytest
from codemode_langchain import CodeModeMiddleware, create_code_mode_tool
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    WrapValidator,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import to_jsonable_python
from scripted_agent import APPROVE, Session, agent, calls, results
from suite import full_only, rounds

EXAMPLES = settings(max_examples=rounds(12, 60), deadline=None)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Kind:
    """A type, the JSON that it takes, and what validators make of its values."""

    def __init__(self, python_type: Any, values: st.SearchStrategy[Any], *changes: Callable[[Any], Any]) -> None:
        self.python_type = python_type
        self.values = values
        self.changes = changes


_number = st.integers(-1000, 1000)
_text = st.text("abc XYZ", max_size=6)
KINDS = [
    Kind(int, _number, lambda n: n * 100, lambda n: -n, lambda n: n + 1, abs, lambda n: min(n, 10)),
    Kind(float, st.floats(-100, 100), lambda n: n / 3, lambda n: round(n, 1)),
    Kind(str, _text, str.strip, str.upper, lambda text: text + "!", lambda text: text * 2, lambda text: text[1:]),
    Kind(bool, st.booleans(), lambda flag: not flag),
    Kind(Decimal, _number.map(lambda n: f"{n}.50"), lambda n: n * 2, abs),
    Kind(dt.date, st.dates(dt.date(1990, 1, 1), dt.date(2090, 1, 1)).map(str), lambda day: day + dt.timedelta(1)),
    Kind(dt.datetime, _number.map(lambda n: f"2024-02-29T10:00:{n % 60:02}+02:00"), lambda at: at.replace(second=0)),
    Kind(dt.timedelta, _number.map(abs), lambda span: span * 2),
    Kind(Colour, st.sampled_from(["red", "blue"]), lambda colour: Colour.RED),
    Kind(Literal["a", 1], st.sampled_from(["a", 1])),
    Kind(SecretStr, _text),
    Kind(set[int], st.lists(_number, max_size=3), lambda some: {*some, 7}),
    Kind(tuple[int, str], st.tuples(_number, _text).map(list), lambda pair: (pair[0] + 1, pair[1])),
    Kind(bytes, _text, lambda data: data + b"!"),
]


@st.composite
def kinds(draw: st.DrawFn, depth: int) -> Kind:
    """A kind, maybe of containers and models, and maybe with validators."""
    choices = ["plain"] * 3 + (["list", "dict", "optional", "model"] if depth else [])
    shape = draw(st.sampled_from(choices))
    if shape == "plain":
        kind = draw(st.sampled_from(KINDS))
    elif shape == "model":
        model, values = draw(models(depth - 1))
        kind = Kind(model, values)
    else:
        inner = draw(kinds(depth - 1))
        kind = {
            "list": lambda: Kind(list[inner.python_type], st.lists(inner.values, max_size=3), lambda some: some[::-1]),
            "dict": lambda: Kind(dict[str, inner.python_type], st.dictionaries(_text, inner.values, max_size=2)),
            "optional": lambda: Kind(Optional[inner.python_type], st.none() | inner.values),  # noqa: UP045 - made here
        }[shape]()
    return draw(with_validator(kind))


@st.composite
def with_validator(draw: st.DrawFn, kind: Kind) -> Kind:
    if not kind.changes or draw(st.booleans()):
        return kind
    change = draw(st.sampled_from(kind.changes))
    where = draw(st.sampled_from(["after", "before", "wrap"]))
    if where == "after":
        return Kind(Annotated[kind.python_type, AfterValidator(change)], kind.values, *kind.changes)
    if where == "wrap":
        return Kind(Annotated[kind.python_type, WrapValidator(lambda value, inner: change(inner(value)))], kind.values)
    return Kind(Annotated[kind.python_type, BeforeValidator(_of_a_pair)], kind.values.map(lambda one: ["pair", one]))


def _of_a_pair(value: Any) -> Any:
    """Takes ["pair", value], or the value: it makes something that it takes again."""
    return value[1] if isinstance(value, list) and cast("list[Any]", value)[:1] == ["pair"] else cast("Any", value)


class Swapping(BaseModel):
    """A whole model's validators: after it has been made, and before."""

    @model_validator(mode="after")
    def _swapped(self) -> Any:
        numbers = [name for name in type(self).model_fields if type(getattr(self, name)) is int]
        for name in numbers:
            object.__setattr__(self, name, getattr(self, name) + 1000)
        return self

    @model_validator(mode="before")
    @classmethod
    def _unwrapped(cls, data: Any) -> Any:
        return {key: value for key, value in data.items() if key != "noise"} if isinstance(data, dict) else data


@st.composite
def models(draw: st.DrawFn, depth: int = 2) -> tuple[type[BaseModel], st.SearchStrategy[Any]]:
    """A model, and the objects that it takes."""
    fields: dict[str, Any] = {}
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for name in draw(st.lists(st.sampled_from(["one", "two", "three", "four"]), min_size=1, max_size=3, unique=True)):
        kind = draw(kinds(depth))
        alias = draw(st.sampled_from([None, None, f"{name}Alias"]))
        default = draw(st.sampled_from(["none", "none", "constant", "factory"]))
        settings_of: dict[str, Any] = {} if alias is None else {"alias": alias}
        if default == "constant":
            settings_of |= {"default": None, "validate_default": False}
        elif default == "factory":
            settings_of |= {"default_factory": list}
        fields[name] = (kind.python_type, Field(**settings_of))
        # What the model is shown of a tool names its fields; of nested models it names their aliases.
        (required if default == "none" else optional)[name if depth == 2 or alias is None else alias] = kind.values
    bases: Any = draw(st.sampled_from([(), (Swapping,)]))
    validated = draw(st.sampled_from([None, *fields]))
    if validated is not None:
        listed = field_validator(validated, mode="after")(_listed)
        fields_model = create_model("Fields", __base__=bases or None, __validators__={"listed": listed}, **fields)
    else:
        fields_model = create_model("Fields", __base__=bases or None, **fields)
    extra = draw(st.sampled_from(["ignore", "allow", "forbid"]))
    model = type(fields_model)(
        "Model", (fields_model,), {"__module__": __name__, "model_config": ConfigDict(extra=extra)}
    )
    return model, st.fixed_dictionaries(required, optional=optional)


def _listed(value: Any) -> Any:
    """A validator of a field: changes the lists and texts that it gets, each time."""
    if isinstance(value, list):
        return [*cast("list[Any]", value), *cast("list[Any]", value)[:1]]
    return f"<{value}>" if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """What a tool got, as JSON."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        found = {field.alias or name: plain(getattr(value, name)) for name, field in fields.items()}
        return found | {name: plain(one) for name, one in (value.model_extra or {}).items()}
    if isinstance(value, dict):
        return {name: plain(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in cast("list[Any]", value)]
    if isinstance(value, set):
        return sorted(cast("set[Any]", value), key=json.dumps)
    return to_jsonable_python(value)


def completes(edit: Any, ran: Any) -> bool:
    """What a person wrote is in what ran."""
    if isinstance(edit, dict) and isinstance(ran, dict):
        values = cast("dict[str, Any]", ran)
        return all(key in values and completes(one, values[key]) for key, one in cast("dict[str, Any]", edit).items())
    if isinstance(edit, list) and isinstance(ran, list):
        pairs = zip(cast("list[Any]", edit), cast("list[Any]", ran), strict=True)
        return len(cast("list[Any]", edit)) == len(cast("list[Any]", ran)) and all(itertools.starmap(completes, pairs))
    return edit == ran


class Trial:
    """One tool with a random schema in an agent or a graph, called by one program."""

    def __init__(self, schema: type[BaseModel], call: Any, place: str) -> None:
        self.ran: list[Any] = []
        self.ruled: list[Any] = []
        self.beside: list[Any] = []
        is_agent = place == "agent"
        injected: dict[str, Any] = {"call_id": (Annotated[str, InjectedToolCallId], ...)}
        if is_agent:
            injected["state"] = (Annotated[dict[str, Any], InjectedState], ...)
        whole = create_model("Whole", __base__=schema, **injected)
        tool = StructuredTool.from_function(self._run, name="run", description="Run.", args_schema=whole)
        js = f"return await tools.run(JSON.parse({json.dumps(json.dumps(call))}))"
        self.session = self._in_agent(js, tool) if is_agent else self._in_graph(js, tool)

    def _run(self, **arguments: Any) -> str:
        self.beside.append([arguments.pop(name, None) for name in ("call_id", "state")])
        self.ran.append(plain(arguments))
        return "ran"

    def _ask(self, arguments: dict[str, Any]) -> bool:
        self.ruled.append(arguments)
        return True

    def _in_agent(self, js: str, tool: Any) -> Session:
        return Session(agent([js], [tool], CodeModeMiddleware(approve={"run": self._ask})))

    def _in_graph(self, js: str, tool: Any) -> Session:
        graph = StateGraph(MessagesState)
        graph.add_node("ask", lambda state: {"messages": [calls(js)]})
        graph.add_node("tools", ToolNode([create_code_mode_tool([tool], approve={"run": self._ask})]))
        graph.set_entry_point("ask")
        graph.add_edge("ask", "tools")
        return Session(graph.compile(checkpointer=InMemorySaver()))

    def asked(self) -> Any:
        """What a person is shown, None when the input did not fit: then nothing is asked and nothing runs."""
        output = self.session.start()
        if "__interrupt__" not in output:
            assert results(output)[0].status == "error"
            assert (self.ran, self.ruled) == ([], [])
            return None
        (one,) = output["__interrupt__"]
        assert self.ruled == [one.value["args"]]
        assert self.ran == []
        return one


@pytest.mark.parametrize("place", ["agent", *full_only("graph")])
@given(data=st.data())
@EXAMPLES
def test_what_is_shown_is_what_runs(place: str, data: st.DataObject):
    schema, values = data.draw(models())
    trial = Trial(schema, data.draw(values), place)
    one = trial.asked()
    if one is None:
        return
    output = trial.session.answer({one.id: APPROVE})
    assert "__interrupt__" not in output
    assert trial.ran == [one.value["args"]]
    ((call_id, state),) = trial.beside
    assert call_id == "call_0:tool-1"
    assert (state is None) == (place == "graph")


@pytest.mark.parametrize("place", ["graph", *full_only("agent")])
@given(data=st.data())
@EXAMPLES
def test_what_is_edited_is_what_runs(place: str, data: st.DataObject):
    schema, values = data.draw(models())
    trial = Trial(schema, data.draw(values), place)
    one = trial.asked()
    if one is None:
        return
    shown: dict[str, Any] = one.value["args"]
    edit = data.draw(st.one_of(st.just(shown), values, values.map(lambda some: {**shown, **some})))
    try:
        trial.session.answer({one.id: {"type": "edit", "edited_action": {"name": "run", "args": edit}}})
    except ValidationError:
        assert trial.ran == []
        trial.session.answer({one.id: APPROVE})
        assert trial.ran == [shown]
        return
    (ran,) = trial.ran
    assert completes(edit, ran)
