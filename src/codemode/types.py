"""Types of values that `codemode` takes and returns: events, results, views of pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .host.imports import create_lazy_getattr

if TYPE_CHECKING:
    from .data.content import ContentResult as ContentResult
    from .execution.pauses import CallView as CallView
    from .execution.pauses import PauseView as PauseView
    from .execution.program_library import SavedProgram as SavedProgram
    from .execution.program_library import SavedVersion as SavedVersion
    from .surfaces.code_call.result import CodeCallResult as CodeCallResult
    from .surfaces.code_mode.openai_custom_tool import OpenAICustomTool as OpenAICustomTool
    from .surfaces.exec_wait.exec_wait_tools import Surface as Surface
    from .surfaces.exec_wait.namespaces import Namespace as Namespace
    from .surfaces.exec_wait.options import InvalidConfigError as InvalidConfigError
    from .surfaces.exec_wait.program_run import RunInfo as RunInfo
    from .surfaces.modules.options import RunOptions as RunOptions
    from .surfaces.modules.response import RunResponse as RunResponse
    from .tools.context import PIPELINE_NULL as PIPELINE_NULL
    from .tools.context import PipelineCall as PipelineCall
    from .trace.events import CatalogQueryEvent as CatalogQueryEvent
    from .trace.events import ConsoleEvent as ConsoleEvent
    from .trace.events import FetchRequestEvent as FetchRequestEvent
    from .trace.events import FetchResultEvent as FetchResultEvent
    from .trace.events import GuestMessageEvent as GuestMessageEvent
    from .trace.events import InterruptEvent as InterruptEvent
    from .trace.events import InvocationStarted as InvocationStarted
    from .trace.events import NestedToolCallEvent as NestedToolCallEvent
    from .trace.events import NestedToolResultEvent as NestedToolResultEvent
    from .trace.events import RefusalEvent as RefusalEvent
    from .trace.trace import Trace as Trace

# Names by the module that defines them. A test compares this with the imports above.
_LAZY_NAMES = {
    "data.content": "ContentResult",
    "execution.pauses": "CallView PauseView",
    "execution.program_library": "SavedProgram SavedVersion",
    "surfaces.code_call.result": "CodeCallResult",
    "surfaces.code_mode.openai_custom_tool": "OpenAICustomTool",
    "surfaces.exec_wait.namespaces": "Namespace",
    "surfaces.exec_wait.options": "InvalidConfigError",
    "surfaces.exec_wait.exec_wait_tools": "Surface",
    "surfaces.exec_wait.program_run": "RunInfo",
    "surfaces.modules.options": "RunOptions",
    "surfaces.modules.response": "RunResponse",
    "tools.context": "PIPELINE_NULL PipelineCall",
    "trace.events": (
        "CatalogQueryEvent ConsoleEvent FetchRequestEvent FetchResultEvent GuestMessageEvent InterruptEvent "
        "InvocationStarted NestedToolCallEvent NestedToolResultEvent RefusalEvent"
    ),
    "trace.trace": "Trace",
}
__all__ = [name for names in _LAZY_NAMES.values() for name in names.split()]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = create_lazy_getattr(__name__, _LAZY_NAMES)
