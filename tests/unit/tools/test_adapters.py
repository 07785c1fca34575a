import importlib.metadata

import pytest

from codemode import CodeModeToolError, run_code_mode_sync
from codemode.schemas.compiled import ValidatedInput
from codemode.tools import adapters
from codemode.tools.adapters import AdapterRegistry, register_adapter
from codemode.tools.collecting import collect_tools
from codemode.tools.prepared import prepare_tool
from codemode.tools.tool import Tool
from codemode.tools.tool_schemas import FrameworkSchema


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


def test_what_an_adapter_makes_has_to_be_a_tool(registry, plugins):
    register_adapter(is_foreign, lambda value: {"name": "foreign"})
    with pytest.raises(TypeError, match=r"an adapter returned dict instead of a Tool for .*ForeignTool"):
        collect_tools([ForeignTool()])


@pytest.mark.parametrize("value", [object(), 5, "text", None, ForeignTool])
def test_an_unknown_object_is_refused(registry, plugins, value):
    with pytest.raises(TypeError, match="Expected a Tool, a function or a tool object of a framework"):
        collect_tools({"x": value})


class Doubled(FrameworkSchema):
    """A framework's schema: a JSON Schema, of whose values it makes something of its own."""

    def __init__(self):
        self.made = 0

    def compile(self, compile_schema):
        self.made += 1
        described = compile_schema({"type": "integer"})

        class Made:
            json_schema = described.json_schema
            is_nondeterministic = False

            def validate_input(self, value):
                return ValidatedInput(described.validate_input(value).value * 2, lambda: value)

            def validate_output(self, value, what):
                return described.validate_output(value, what) * 2

        return Made()


def test_a_framework_says_itself_what_its_schemas_come_to():
    given, gave = Doubled(), Doubled()
    tool = Tool("twice", execute=lambda value: value, input_schema=given, output_schema=gave)
    one = prepare_tool(tool)
    assert (one.schema_kinds, given.made, gave.made) == ({"dict", "type"}, 0, 0)
    assert one.input_json_schema == one.output_json_schema == {"type": "integer"}
    assert (one.validate_input(2).value, one.validate_input(2).json_value) == (4, 2)
    with pytest.raises(CodeModeToolError) as caught:
        one.validate_input("2")
    assert (caught.value.details["tool_name"], caught.value.details["schema"]) == ("twice", "input")
    assert run_code_mode_sync("return await tools.twice(3)", [tool]) == 12
    assert (given.made, gave.made) == (1, 1)


def test_a_framework_has_no_schema_or_a_broken_one():
    class Schema(FrameworkSchema):
        def __init__(self, schema):
            self.schema = schema

        def compile(self, compile_schema):
            return compile_schema(self.schema)

    assert prepare_tool(Tool("any", execute=None, input_schema=Schema(None))).input_json_schema is None
    broken = Tool("broken", execute=None, input_schema=Schema({"pattern": "("}))
    with pytest.raises(ValueError, match="input_schema of tool 'broken'"):
        prepare_tool(broken).compile_schemas()
