import importlib.metadata

import pytest

from codemode.tools import adapters
from codemode.tools.adapters import AdapterRegistry, register_adapter
from codemode.tools.collecting import collect_tools
from codemode.tools.tool import Tool


class ForeignTool:
    label = "foreign"

    def __call__(self, x):
        raise AssertionError("a framework's object is not called by itself")


def convert(value):
    return Tool(value.label, execute=lambda: "converted")


def is_foreign(value):
    return isinstance(value, ForeignTool)


class Plugin:
    def __init__(self, name, load):
        self.name, self.load = name, load


@pytest.fixture
def registry(monkeypatch):
    registry = AdapterRegistry()
    monkeypatch.setattr(adapters, "ADAPTERS", registry)
    monkeypatch.setattr("codemode.tools.collecting.ADAPTERS", registry)
    return registry


@pytest.fixture
def plugins(monkeypatch):
    installed, lookups = [], []

    def entry_points(*, group):
        assert group == "codemode.adapters"
        lookups.append(group)
        return installed

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return installed, lookups


def test_a_registered_adapter_converts(registry, plugins):
    register_adapter(is_foreign, convert)
    assert list(collect_tools([ForeignTool()])) == ["foreign"]
    assert collect_tools({"mine": ForeignTool()})["mine"].call(None, None) == "converted"
    assert plugins[1] == []


def test_the_newest_adapter_wins(registry, plugins):
    register_adapter(is_foreign, convert)
    register_adapter(is_foreign, lambda value: Tool("newer", execute=None))
    assert list(collect_tools([ForeignTool()])) == ["newer"]


def test_plugins_are_discovered_once_and_only_when_needed(registry, plugins):
    installed, lookups = plugins

    def plugin(register):
        register(is_foreign, convert)

    installed.append(Plugin("foreign", lambda: plugin))
    collect_tools([Tool("plain", execute=None)])
    assert lookups == []
    assert list(collect_tools([ForeignTool()])) == ["foreign"]
    with pytest.raises(TypeError):
        collect_tools([object()])
    assert lookups == ["codemode.adapters"]


def test_a_broken_plugin_is_named_and_harms_no_other(registry, plugins):
    def broken():
        raise ImportError("no such framework")

    plugins[0].extend(
        [Plugin("broken", broken), Plugin("foreign", lambda: lambda register: register(is_foreign, convert))]
    )
    assert list(collect_tools([ForeignTool()])) == ["foreign"]
    with pytest.raises(TypeError, match="broken: ImportError: no such framework"):
        collect_tools([object()])


@pytest.mark.parametrize("value", [object(), 5, "text", None, ForeignTool])
def test_an_unknown_object_is_refused(registry, plugins, value):
    with pytest.raises(TypeError, match="is not a tool; a Tool, a function, or a tool object of a framework"):
        collect_tools({"x": value})
