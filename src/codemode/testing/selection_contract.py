"""Checks of what every plugin promises about which tools are in programs and what the model reads of them."""

from __future__ import annotations

from typing import Any

from .plugin_under_test import Check, ContractTool, Failed, Finished, PluginUnderTest, run

_NAMES = ("stock", "refund", "close")


class _Shop:
    """Three tools that nobody has to be asked about; ``did`` is what has happened."""

    def __init__(self, *, gated: bool = False) -> None:
        self.did: list[str] = []
        self.tools = [
            ContractTool(name=name, function=self._named(name), needs_approval=gated and name == "refund")
            for name in _NAMES
        ]

    def _named(self, name: str) -> Any:
        def tool(n: int) -> str:
            """Do as the name says."""
            self.did.append(name)
            return f"{name} {n}"

        return tool


async def selects_tools(plugin: PluginUnderTest) -> None:
    """By ``tools`` and ``keep`` each tool is in programs, or called directly, or both; none vanishes."""
    for settings, direct, in_programs in (
        ({}, set[str](), set(_NAMES)),
        ({"tools": ["stock"]}, {"refund", "close"}, {"stock"}),
        ({"keep": ["stock"]}, {"stock"}, {"refund", "close"}),
        ({"tools": "all", "keep": ["stock"]}, {"stock"}, set(_NAMES)),
    ):
        shown = await plugin.having(**settings).shown(_Shop().tools)
        assert set(shown) == {"codeMode", *direct}, settings
        assert {name for name in _NAMES if f"{name}(input" in shown["codeMode"]} == in_programs, settings


async def calls_as_selected(plugin: PluginUnderTest) -> None:
    """A tool in both is called both ways; one that is in programs alone the model cannot call by its name."""
    shop, selected = _Shop(), plugin.having(tools=["stock", "close"], keep=["stock"])
    assert await selected.call(shop.tools, "stock", {"n": 1}) == Finished(value="stock 1")
    assert await selected.call(shop.tools, "refund", {"n": 2}) == Finished(value="refund 2")
    assert isinstance(await selected.call(shop.tools, "close", {"n": 3}), Failed)
    assert await run(selected, shop.tools, "return await tools.stock({ n: 4 });") == Finished(value="stock 4")
    assert isinstance(await run(selected, shop.tools, "return await tools.refund({ n: 5 });"), Failed)
    assert shop.did == ["stock", "refund", "stock"], shop.did


async def keeps_tools(plugin: PluginUnderTest) -> None:
    """What is in ``keep`` the model calls itself, beside the tools of the face, which stand for all others."""
    shop, keeping = _Shop(), plugin.having(keep=["stock"])
    assert set(await keeping.shown(shop.tools)) == {*plugin.face.offered, "stock"}
    assert await keeping.call(shop.tools, "stock", {"n": 1}) == Finished(value="stock 1")
    assert isinstance(await keeping.call(shop.tools, "close", {"n": 2}), Failed)
    assert isinstance(await run(keeping, shop.tools, "return await tools.stock({ n: 3 });"), Failed)
    assert await run(keeping, shop.tools, "return await tools.close({ n: 4 });") == Finished(value="close 4")
    assert shop.did == ["stock", "close"], shop.did


async def keeps_the_gate_of_direct_calls(plugin: PluginUnderTest) -> None:
    """A gated tool that the model may call itself does not run unasked: it waits, fails, or no agent is made."""
    shop = _Shop(gated=True)
    outcome: Any = None
    try:
        outcome = await plugin.having(tools="all", keep=["refund"]).call(shop.tools, "refund", {"n": 1})
    except ValueError as error:
        assert "refund" in str(error)  # noqa: PT017 - which of the three it is each framework says
    assert not isinstance(outcome, Finished), outcome
    assert shop.did == []


async def refuses_names_of_no_tool(plugin: PluginUnderTest) -> None:
    """A name that fits no tool, and a text where a list is meant, are told of before the model is asked anything."""
    for option in ("tools", "keep"):
        for wrong, told in ((["stokc"], "'stock'"), ("stock", f"{option}=['stock']")):
            try:
                await plugin.having(**{option: wrong}).shown(_Shop().tools)
            except Exception as error:  # noqa: BLE001 - each framework has its own class
                assert told in str(error), (option, wrong)  # noqa: PT017 - as above
            else:
                raise AssertionError(f"{option}={wrong!r} was taken")


async def lists_tools_as_told(plugin: PluginUnderTest) -> None:
    """``listing`` makes the model read all declarations, the names alone, or a text that is the same for any tools."""
    shop = _Shop()
    shown = {how: await _listed(plugin, how, shop.tools) for how in ("full", "names", "search")}
    assert ["stock(input" in shown[how] for how in shown] == [True, False, False]
    assert ["stock" in shown[how] for how in shown] == [True, True, False]
    assert shown["search"] == await _listed(plugin, "search", shop.tools[:1])
    js = "const [found] = await tools.$search('stock'); return await tools[found.name]({ n: 1 });"
    assert await run(plugin.having(listing="search"), shop.tools, js) == Finished(value="stock 1")


async def _listed(plugin: PluginUnderTest, listing: str, tools: list[ContractTool]) -> str:
    return (await plugin.having(listing=listing).shown(tools))["codeMode"]


SELECTION: tuple[Check, ...] = (
    selects_tools,
    calls_as_selected,
    keeps_tools,
    keeps_the_gate_of_direct_calls,
    refuses_names_of_no_tool,
    lists_tools_as_told,
)
