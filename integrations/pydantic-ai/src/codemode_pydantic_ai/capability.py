"""The capabilities: the tools of a surface in place of an agent's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.tools import AgentDepsT
from typing_extensions import Unpack

from codemode import CodeCallOptions, WorkerPool

from .code_call import CodeCallFace, CodeCallFields, ScriptContext
from .code_mode import CodeModeFace, Options
from .faces import MAX_RETRIES, check_settings
from .hiding_capability import HidingCapability


@dataclass
class CodeMode(HidingCapability[AgentDepsT]):
    """Lets the model write programs over the agent's tools instead of calling them one by one.

    ``options``: `CodeModeOptions` or a mapping. ``keep``: names of tools that the model goes on calling directly.
    ``max_retries``: how often the model may correct a program that failed. ``pool``: the `WorkerPool` that runs the
    programs, such as a tenant's share; without one they wait for workers of the process-wide pool. Continuations are
    always sealed, and hold for a week unless ``continuation.max_age_ms`` says otherwise.
    """

    options: Options = None

    def __post_init__(self) -> None:
        """Check the options now, not in the first run."""
        check_settings(self.keep, self.max_retries, self.pool)
        self._made_face = CodeModeFace(self.options, self.pool)
        self.options = self._made_face.settings


@dataclass(init=False)
class CodeCall(HidingCapability[AgentDepsT]):
    """Lets the model search the agent's tools, read the definitions of those that fit, and call them from scripts.

    ``options``: `CodeCallOptions` or a mapping; its fields may also be given by name, such as ``direct_calls=``, and
    then stand above it. The meta-tools are called ``codecall_search`` and so on unless ``names`` says otherwise.
    ``search={"embed": ...}`` also takes a pydantic-ai `Embedder`. A tool says what it is to CodeCall in its
    ``metadata["codecall"]``. ``script_context``: ``(ctx: RunContext) -> mapping``, sync or async, of what scripts read
    in ``codecallContext``. ``keep``, ``max_retries`` and ``pool`` are those of `CodeMode`; a script that failed is an
    answer, and costs no retry.
    """

    options: CodeCallOptions
    script_context: ScriptContext | None

    def __init__(
        self,
        options: CodeCallOptions | Mapping[str, Any] | None = None,
        keep: Collection[str] = (),
        max_retries: int = MAX_RETRIES,
        pool: WorkerPool | None = None,
        *,
        script_context: ScriptContext | None = None,
        id: str | None = None,  # noqa: A002 - these three are every capability's
        description: str | None = None,
        defer_loading: bool = False,
        **fields: Unpack[CodeCallFields],
    ) -> None:
        check_settings(keep, max_retries, pool)
        super().__init__(id=id, description=description, defer_loading=defer_loading)
        self._made_face = face = CodeCallFace(options, pool, script_context, fields)
        self.options, self.keep, self.max_retries, self.pool = face.options, keep, max_retries, pool
        self.script_context = script_context
