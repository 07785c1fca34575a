"""The tools of one server, made ready for modules: none is lost for its name or its schema. Lists nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ...cached_property import cached_property
from ...data.narrowing import is_mapping
from ...errors import CodeModeToolError
from ...host import steps
from ...schemas.compiled import ValidatedInput
from ...schemas.readable import says_nothing
from ...tools.collecting import collect_plain_tools
from ...tools.foreign_schemas import foreign_schemas
from ...tools.names import check_is_name
from ...tools.prepared import MISSING, PreparedTool
from ...tools.server_lists import LeftOut, entry_label
from ...tools.server_texts import MAX_DESCRIPTION_CHARACTERS, plain_annotations, plain_text
from ...tools.tool import Tool
from .listing import ModuleTool
from .names import MAX_CALLED_CHARACTERS, export_names, qualified_name

_STEPS_OF_A_TOOL = 4
_log = logging.getLogger("codemode.tools")


def collected(tools: Mapping[str, Any] | Iterable[Any], left_out: LeftOut | None = None) -> dict[str, Tool]:
    """Collect tools under the names that their server has for them, whichever these are.

    What cannot be used is noted in ``left_out``. Without it, raises `ValueError`.
    """
    if left_out is None and is_mapping(tools) and "" in tools:
        _log.warning("a tool is left out, for it has no name")
        tools = {name: tool for name, tool in tools.items() if name != ""}
    return collect_plain_tools(tools, check_is_name, left_out)


def module_tools(path: str, tools: Mapping[str, Tool], left_out: LeftOut) -> tuple[ModuleTool, ...]:
    """Return the tools of a server as its module has them, in alphabetical order, with compiled schemas."""
    callable_names = [name for name in tools if _can_be_called(path, name, left_out)]
    exports = export_names(callable_names)
    return tuple(
        ModuleTool(name, export, ServerTool(tools[name], qualified_name(path, name)))
        for name, export in exports.items()
    )


class ServerTool(PreparedTool):
    """A tool under its qualified name. A schema that nobody can read takes anything."""

    def __init__(self, tool: Tool, name: str) -> None:
        super().__init__(tool)
        steps.take(_STEPS_OF_A_TOOL)
        self.name = name
        self.description = plain_text(tool.description, MAX_DESCRIPTION_CHARACTERS) or ""
        self.annotations = plain_annotations(tool.annotations)
        self._schemas = foreign_schemas(name, tool.input_schema, tool.output_schema)

    def validate_input(self, value: Any) -> ValidatedInput:
        """Do what every tool does; an error says in short what stands where it should not.

        A tool that says nothing of its input gets ``{}`` from a call without one, as an MCP server would.
        """
        if value is MISSING and says_nothing(self.input_json_schema):
            value = {}
        try:
            return super().validate_input(value)
        except CodeModeToolError as error:
            if error.reason == "validation":
                from .mismatch import received_of  # late, as `example_of`: most inputs fit

                error.details["received"] = received_of(error.details.get("problems"), value)
                if "example" not in vars(self):
                    steps.take(steps.STEPS_ON_THE_LOOP + 1)  # it is made off the loop, and once
                    _ = self.example
            raise

    @cached_property
    def example(self) -> Any:
        """An input that fits, `NOT_GIVEN` where none is small."""
        from .mismatch import example_of

        return example_of(self)


def _can_be_called(path: str, name: str, left_out: LeftOut) -> bool:
    """Tell whether a worker can name a tool. A text with half a pair is none that crosses."""
    try:
        name.encode()
    except UnicodeEncodeError:
        is_text = False
    else:
        is_text = True
    if is_text and len(qualified_name(path, name)) <= MAX_CALLED_CHARACTERS:
        return True
    left_out.add("no program could call it by its name", entry_label({"name": name}, 1))
    return False
