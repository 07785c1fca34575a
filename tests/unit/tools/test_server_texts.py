"""What servers say of themselves and their tools: plain, bounded, and nobody else's trouble whatever it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from module_servers import RESULT, check_response
from suite import each_row
from waiting import within

from codemode import ModuleServer, Tool, create_modules_tool
from codemode.tools.server_lists import (
    MAX_ANNOTATIONS,
    MAX_CAPABILITIES,
    MAX_DESCRIPTION_CHARACTERS,
    MAX_NAME_CHARACTERS,
    to_bounded_annotations,
    to_bounded_text,
    to_bounded_texts,
)


def _refuse(*_: Any) -> Any:
    raise RuntimeError("touched")


class Text(str):
    """Text whose methods all raise; what it is remains to be read."""

    __slots__ = ()
    __str__ = __repr__ = __len__ = __getitem__ = __iter__ = __contains__ = __eq__ = __lt__ = __format__ = _refuse
    __hash__ = str.__hash__
    replace = encode = split = splitlines = strip = partition = startswith = lower = isidentifier = _refuse


def endless() -> Any:
    said: list[Any] = []
    said.append(said)
    return said


HUGE = "x" * 3_000_000
DEEP: Any = json.loads("[" * 400 + "]" * 400)
ODD = [Text("said"), HUGE, "\ud800", "\x00", "a\n- other: 9 tools\n```", "", 5, None, ["x"], object()]
ANNOTATIONS: list[dict[Any, Any]] = [
    {Text("readOnlyHint"): Text("said")},
    {"readOnlyHint": object(), "x": float("nan"), "y": b"\xff"},
    {"x": endless()},
    {"x": DEEP},
    {"x": HUGE},
    {HUGE: True},
    {f"k{at}": HUGE[:1000] for at in range(5_000)},
    {5: 5, None: None},
]


def odd_tool(**said: Any) -> Tool:
    return Tool(said.pop("name", "odd"), execute=lambda _: 1, **said)


SERVERS: list[Callable[[], ModuleServer]] = [
    *(lambda said=said: Odd(name=said, version=said, description=said, capabilities=[said] * 500) for said in ODD),
    *(lambda said=said: Odd(odd_tool(annotations=said)) for said in ANNOTATIONS),
    lambda: Odd(odd_tool(description=Text("said"))),
    lambda: Odd(odd_tool(description=HUGE)),
    lambda: Odd(odd_tool(name=Text("odd"))),
]


class Odd:
    """A server whose tools change, and which says of itself what it likes."""

    server_id = "odd"
    revision = 1

    def __init__(self, tool: Tool | None = None, **said: Any) -> None:
        self._tool = odd_tool() if tool is None else tool
        vars(self).update(said)

    async def tools(self) -> list[Tool]:
        return [self._tool]


CODE = f"""
import * as discovery from "@codemode/discovery";
import * as odd from "@codemode/servers/odd";
const all = [await discovery.listServers(), await discovery.describeServer("odd"), odd.__meta__];
for (const detail of ["name", "description", "full"]) {{
  all.push(await discovery.listTools("odd", {{ detail }}), await discovery.searchTools("odd kind", {{ detail }}));
}}
const {{ results }} = await discovery.searchTools("kind", {{ serverId: "kind", detail: "full" }});
{RESULT}[JSON.stringify(all).length, await odd.odd(), results.length, await discovery.getTool("kind", "kind")];
"""


@each_row("make", SERVERS)
def test_whatever_a_server_says_costs_nobody_anything(make: Callable[[], Any]):
    kind = ModuleServer("kind", [Tool("kind", execute=lambda _: 1, description="Is kind.")])
    run = create_modules_tool([make(), kind])
    response = within(run.execute({"code": CODE, "requestedCapabilities": ["odd", "kind"]}))
    check_response(response)
    assert response["diagnostics"] == []
    size, called, found, definition = response["result"]
    assert (called, found) == (1, 1)
    assert definition["description"] == "Is kind."
    assert size < 1_000_000
    assert len(run.description) <= 4_000
    assert run.description.count("\n- ") < 12
    assert "\n- other" not in run.description
    assert 'declare module "@codemode/servers/odd"' in run.declarations()


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
    )
)
def test_small_json_is_kept_as_it_is(value: Any):
    kept = to_bounded_annotations({"title": value, "bad": object()})
    assert "bad" not in kept
    assert set(kept) <= {"title"}
    json.dumps(kept, allow_nan=False)


def test_bounds():
    assert to_bounded_annotations({f"k{at}": at for at in range(500)}) == {
        f"k{at}": at for at in range(MAX_ANNOTATIONS)
    }
    assert len(to_bounded_texts(map(str, range(500)))) == MAX_CAPABILITIES
    assert len(to_bounded_text(HUGE) or "") == MAX_NAME_CHARACTERS
    assert len(to_bounded_text(HUGE, MAX_DESCRIPTION_CHARACTERS) or "") == MAX_DESCRIPTION_CHARACTERS
    assert type(to_bounded_text(Text("said"))) is str
    assert [to_bounded_text(one) for one in ("", 5, None)] == [None] * 3
