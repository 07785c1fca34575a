"""``codemode describe``: a Python file as a set of tools, and what a model sees of it."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ..data.json_values import count_utf8_bytes
from ..surfaces.code_mode.tool import CodeModeTool, create_code_mode_tool
from ..tools.tool import Tool
from ..trace.visible_text import escape_invisible, format_count
from .exits import SUCCEEDED, UsageError

_MODULE_NAME = "codemode_tools_file"


def load_tools(path: str | None) -> Mapping[str, Any] | list[Any]:
    """Return the tools of a file, or none without a file. Raises `UsageError` if it has no tools or does not load.

    If it defines ``tools``, a list or mapping, only these count. Else every public function that it defines, and every
    `Tool`.
    """
    if path is None:
        return []
    module = _load_module(Path(path))
    tools = _list_exported_or_defined_tools(module) if hasattr(module, "tools") else _list_defined_tools(module)
    if not tools:
        raise UsageError(f"{path} has no tools: define a public function, use @tool, or name them in a list `tools`")
    return tools


def _list_exported_or_defined_tools(module: ModuleType) -> Mapping[str, Any] | list[Any]:
    tools: Any = module.tools
    if isinstance(tools, Mapping):
        return cast("Mapping[str, Any]", tools)
    if isinstance(tools, Iterable) and not isinstance(tools, str):
        return list(cast("Iterable[Any]", tools))
    # A function or module that happens to have the name.
    return _list_defined_tools(module)


def _list_defined_tools(module: ModuleType) -> list[Any]:
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return [value for value in public.values() if isinstance(value, Tool) or _is_function_defined_in(value, module)]


def _is_function_defined_in(value: object, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _load_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"tools file {path} does not exist")
    spec = importlib.util.spec_from_file_location(_MODULE_NAME, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE_NAME] = module  # annotations are looked up there
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        reason = "".join(traceback.format_exception_only(error)).strip()
        raise UsageError(f"{path} does not load: {reason}{_describe_error_line(error, path)}") from error
    return module


def _describe_error_line(error: BaseException, path: Path) -> str:
    file_frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path.resolve())
    ]
    return f" (line {file_frames[-1].lineno})" if file_frames else ""


_CHARACTERS_PER_TOKEN = 4  # a rule of thumb for English text and code


def print_tool_description(options: argparse.Namespace) -> int:
    """Print the description to stdout and its size to stderr."""
    code_mode = create_code_mode_tool_from_file(options.tools, None)
    text = code_mode.description
    if options.json:
        sizes = {"tools": len(code_mode.catalog), "characters": len(text), "tokens": len(text) // _CHARACTERS_PER_TOKEN}
        print(json.dumps({"name": code_mode.name, "description": text, "inputSchema": code_mode.input_schema, **sizes}))
        return SUCCEEDED
    print(escape_invisible(text, keep="\n\t"))
    schema_bytes = count_utf8_bytes(json.dumps(code_mode.input_schema))
    size = f"{format_count(len(text), 'character')}, about {format_count(len(text) // _CHARACTERS_PER_TOKEN, 'token')}"
    print(
        f"\n{format_count(len(code_mode.catalog), 'tool')}; {size}; {schema_bytes} bytes of input schema",
        file=sys.stderr,
    )
    return SUCCEEDED


def create_code_mode_tool_from_file(path: str | None, options: dict[str, object] | None) -> CodeModeTool:
    """Return the codeMode tool over a tools file. Raises `UsageError` for tools or options that cannot be used."""
    tools = load_tools(path)
    try:
        code_mode = create_code_mode_tool(tools, options)
        _ = code_mode.description
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return code_mode
