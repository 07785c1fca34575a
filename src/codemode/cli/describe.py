"""``codemode describe``: what a model sees of the tools, and how large that is."""

from __future__ import annotations

import argparse
import json
import sys

from ..data.json_values import utf8_length
from ..surfaces.code_mode.tool import CodeModeTool, create_code_mode_tool
from ..trace.visible_text import counted, visible
from .exits import DONE, UsageError
from .tools_file import load_tools

_CHARACTERS_PER_TOKEN = 4  # a rule of thumb for English text and code


def describe(options: argparse.Namespace) -> int:
    """Print the description to stdout and its size to stderr."""
    code_mode = tool_over(options.tools, None)
    text = code_mode.description
    print(visible(text, keep="\n\t"))
    schema_bytes = utf8_length(json.dumps(code_mode.input_schema))
    size = f"{counted(len(text), 'character')}, about {counted(len(text) // _CHARACTERS_PER_TOKEN, 'token')}"
    print(f"\n{counted(len(code_mode.catalog), 'tool')}; {size}; {schema_bytes} bytes of input schema", file=sys.stderr)
    return DONE


def tool_over(path: str | None, options: dict[str, object] | None) -> CodeModeTool:
    """Return the codeMode tool over a tools file. Raises `UsageError` for tools or options that cannot be used."""
    tools = load_tools(path)
    try:
        code_mode = create_code_mode_tool(tools, options)
        _ = code_mode.description
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return code_mode
