"""Start the first run of a process while its worker boots; sync forms of surfaces."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ..data.json_values import NOT_GIVEN
from ..errors import CodeModeError, CodeModeWorkerError, Resumable
from ..host.imports import importing
from ..host.sync import refuse_in_workflow, run_sync
from ..options.parts import CodeModeOptions
from ..workers.pool import WorkerPool, pool_or_default
from .optional_parts import load_optional_parts, optional_parts_are_loaded

if TYPE_CHECKING:
    from ..profile import Profile
    from ..tools.catalog import ToolCatalog
    from ..tools.prepared import PreparedTool
    from ..workers.pool import WorkerPool
    from .call_context import CallContext, OuterCall
    from .outcome import RunOutcome


def started(pool: WorkerPool | None) -> WorkerPool:
    """Return the pool to use, the process-wide one for None, with its first worker booting at least.

    Raises `RuntimeError` where no program can run, as `refuse_in_workflow` says; so does `prepared`.
    """
    refuse_in_workflow()
    workers = pool_or_default(pool)
    workers.start()
    return workers


async def prepared(pool: WorkerPool | None, options: CodeModeOptions) -> WorkerPool:
    """Return the pool to use as `started` does, with what runs programs imported. The event loop goes on meanwhile."""
    refuse_in_workflow()
    workers = pool_or_default(pool)
    if not (workers.has_begun and load_execution.cache_info().currsize and optional_parts_are_loaded(options)):
        await workers.off_loop(partial(_prepare, workers, options))
    return workers


def _prepare(workers: WorkerPool, options: CodeModeOptions) -> None:
    workers.start()
    load_execution()
    with importing:
        load_optional_parts(options)


@cache
def load_execution():
    """Import what runs programs: late, for the first worker boots meanwhile, on another processor.

    Raises `CodeModeWorkerError` when it cannot be read, as where no descriptors are left.
    """
    try:
        with importing:
            from . import execution
    except OSError as error:
        raise CodeModeWorkerError(f"what runs programs cannot be imported: {error}") from error
    return execution


@cache
def load_resting():
    """Import what runs programs that may rest. Raises as `load_execution` does."""
    load_execution()
    try:
        with importing:
            from . import resting
    except OSError as error:
        raise CodeModeWorkerError(f"what runs programs cannot be imported: {error}") from error
    return resting


@cache
def load_continuations():
    """Import what goes on with paused programs, as late."""
    with importing:
        from . import resume as continuations
    return continuations


async def resume_answered(
    profile: Profile,
    interrupt: Resumable | Mapping[str, Any],
    resolution: Any,
    resolutions: Mapping[str, Any] | None,
    catalog: ToolCatalog[PreparedTool],
    options: CodeModeOptions,
    outer: OuterCall,
    pool: WorkerPool | None,
) -> RunOutcome:
    """Resume a paused program with these answers, as `resume` does, once a worker boots and that is imported."""
    workers = await prepared(pool, options)
    if not load_continuations.cache_info().currsize:
        await workers.off_loop(load_continuations)
    continuations = load_continuations()
    answers = partial(continuations.answers_of, resolution=resolution, resolutions=resolutions)
    return await continuations.resume(profile, interrupt, answers, catalog, options, outer, workers)


class SyncForms:
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
        with suppress(CodeModeError):
            started(self._pool)
