"""Add forms for code that is not async to a surface."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..data.json_values import NOT_GIVEN
from ..errors import CodeModeError, Resumable
from ..host.sync import require_outside_temporal_workflow, run_sync

if TYPE_CHECKING:
    from ..workers.pool import WorkerPool
    from .call_context import CallContext


class SyncMethodsMixin:
    """Adds `execute_sync` and `resume_sync` to a surface. Both also work while an event loop runs in this thread."""

    _pool: WorkerPool | None

    async def execute(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Run a program; a surface defines it."""
        raise NotImplementedError

    async def resume(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Resume a paused program; a surface defines it."""
        raise NotImplementedError

    def execute_sync(self, program: str | Mapping[str, Any], call: CallContext | None = None) -> Any:
        """Do what `execute` does, from code that is not async."""
        self._start_pool()
        return run_sync(self.execute(program, call))

    def resume_sync(
        self,
        interrupt: Resumable | Mapping[str, Any],
        resolution: Any = NOT_GIVEN,
        call: CallContext | None = None,
        *,
        resolutions: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do what `resume` does, from code that is not async."""
        return run_sync(self.resume(interrupt, resolution, call, resolutions=resolutions))

    def _start_pool(self) -> None:
        """Start the first worker while asyncio is imported. The run reports what prevents that."""
        require_outside_temporal_workflow()
        from .starting import start_pool  # loads what runs programs

        with suppress(CodeModeError):
            start_pool(self._pool)
