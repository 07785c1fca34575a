"""The API for framework plugins, in addition to `codemode` and `codemode.stores`.

Other names of the package may change with any version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .host.imports import create_lazy_getattr

if TYPE_CHECKING:
    from .data.content import replace_content as replace_content
    from .data.content import restore_content as restore_content
    from .data.content import split_content as split_content
    from .data.exact_integers import protect_integers as protect_integers
    from .data.exact_integers import restore_integers as restore_integers
    from .data.json_shape import run_off_loop_if_large as run_off_loop_if_large
    from .execution.call_context import BufferedStateBackend as BufferedStateBackend
    from .execution.call_context import InMemoryStateBackend as InMemoryStateBackend
    from .execution.resume import OpenedContinuation as OpenedContinuation
    from .host.forks import create_fork_safe_lock as create_fork_safe_lock
    from .interrupts.interrupt import is_same_json as is_same_json
    from .observe.reporter import add_event_listener as add_event_listener
    from .options.parts import Listing as Listing
    from .schemas.compiled import CompiledSchema as CompiledSchema
    from .schemas.compiled import SchemaMismatchError as SchemaMismatchError
    from .schemas.compiled import ValidatedInput as ValidatedInput
    from .schemas.compiled import copy_json as copy_json
    from .schemas.type_traits import buffer_iterators as buffer_iterators
    from .schemas.type_traits import list_items as list_items
    from .surfaces.agent_options import configure_agent_options as configure_agent_options
    from .tools.collecting import select_tools_with_callable_names as select_tools_with_callable_names
    from .tools.prepared import PreparedTool as PreparedTool
    from .tools.selection import ToolSelection as ToolSelection
    from .tools.tool_schemas import FrameworkSchema as FrameworkSchema
    from .tools.tool_schemas import InferredOutput as InferredOutput

# Names by the module that defines them. A test compares this with the imports above.
_LAZY_NAMES = {
    "data.content": "replace_content restore_content split_content",
    "data.exact_integers": "protect_integers restore_integers",
    "data.json_shape": "run_off_loop_if_large",
    "execution.call_context": "BufferedStateBackend InMemoryStateBackend",
    "execution.resume": "OpenedContinuation",
    "host.forks": "create_fork_safe_lock",
    "interrupts.interrupt": "is_same_json",
    "observe.reporter": "add_event_listener",
    "options.parts": "Listing",
    "schemas.compiled": "CompiledSchema SchemaMismatchError ValidatedInput copy_json",
    "schemas.type_traits": "list_items buffer_iterators",
    "surfaces.agent_options": "configure_agent_options",
    "tools.collecting": "select_tools_with_callable_names",
    "tools.prepared": "PreparedTool",
    "tools.selection": "ToolSelection",
    "tools.tool_schemas": "FrameworkSchema InferredOutput",
}
__all__ = [name for names in _LAZY_NAMES.values() for name in names.split()]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = create_lazy_getattr(__name__, _LAZY_NAMES)
