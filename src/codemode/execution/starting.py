"""Start the first run of a process while its worker boots."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ..errors import CodeModeWorkerError, Resumable
from ..host.imports import importing
from ..host.sync import require_outside_temporal_workflow
from ..options.parts import CodeModeOptions
from ..workers.pool import WorkerPool, get_pool_or_default
from .optional_parts import import_telemetry_if_enabled, is_telemetry_imported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..profile import StaticRules, SurfaceSettings
    from ..tools.catalog import ToolCatalog
    from ..tools.prepared import PreparedTool
    from ..workers.pool import WorkerPool
    from .call_context import CallContext, OuterCallSettings
    from .outcome import RunOutcome
    from .program_library import ProgramLibrary


def start_pool(pool: WorkerPool | None) -> WorkerPool:
    """Return the pool, the process-wide one for None, with its first worker starting.

    Raises `RuntimeError` in a workflow, see `require_outside_temporal_workflow`.
    """
    require_outside_temporal_workflow()
    workers = get_pool_or_default(pool)
    workers.start()
    return workers


async def get_pool_and_import_execution(pool: WorkerPool | None, options: CodeModeOptions) -> WorkerPool:
    """Return the pool to use as `start_pool` does; import in a thread what runs programs."""
    require_outside_temporal_workflow()
    workers = get_pool_or_default(pool)
    is_loaded = not options.telemetry.is_enabled or is_telemetry_imported()
    # With everything imported there is nothing to do while the first worker starts.
    if not (is_loaded and import_execution_module.cache_info().currsize):
        await workers.run_in_start_thread(partial(_start_pool_and_import, workers, options))
    return workers


def _start_pool_and_import(workers: WorkerPool, options: CodeModeOptions) -> None:
    workers.start()
    import_execution_module()
    with importing:
        import_telemetry_if_enabled(options)


@cache
def import_execution_module():
    """Import the execution module late, while the first worker starts on another processor.

    Raises `CodeModeWorkerError` if it cannot be read, for example without free descriptors.
    """
    try:
        with importing:
            from . import execution
    except OSError as error:
        raise CodeModeWorkerError(f"the execution modules cannot be imported: {error}") from error
    return execution


@cache
def import_suspendable_module():
    """Import the module of suspendable programs. Raises as `import_execution_module`."""
    import_execution_module()
    try:
        with importing:
            from . import suspendable_execution
    except OSError as error:
        raise CodeModeWorkerError(f"the execution modules cannot be imported: {error}") from error
    return suspendable_execution


@cache
def import_resume_module():
    """Import the module that resumes paused programs."""
    with importing:
        from . import resume as continuations
    return continuations


async def resume_with_answers(
    profile: SurfaceSettings,
    interrupt: Resumable | Mapping[str, Any],
    resolution: Any,
    resolutions: Mapping[str, Any] | None,
    catalog: ToolCatalog[PreparedTool],
    options: CodeModeOptions,
    outer: OuterCallSettings,
    pool: WorkerPool | None,
) -> RunOutcome:
    """Resume a paused program with answers as `resume_program` does, with the pool started and modules imported."""
    workers = await get_pool_and_import_execution(pool, options)
    if not import_resume_module.cache_info().currsize:
        await workers.run_in_start_thread(import_resume_module)
    continuations = import_resume_module()
    answers = partial(continuations.normalize_answers_by_id, resolution=resolution, resolutions=resolutions)
    return await continuations.resume_program(profile, interrupt, answers, catalog, options, outer, workers)


def bind_optional_library_unless_shadowed(
    library: ProgramLibrary | None, catalog: ToolCatalog[PreparedTool], names: Iterable[str]
) -> ProgramLibrary | None:
    """Return the library for programs over these tools; ``names`` are those of tools and namespaces.

    Raises `ValueError` for another type.
    """
    if library is None:
        return None
    from .saved_programs import bind_library_unless_shadowed  # late: only saved programs need it

    return bind_library_unless_shadowed(library, catalog, names)


def append_library_description(description: str, library: ProgramLibrary | None, import_from: str | None = None) -> str:
    """Append the description of saved programs, if there are any."""
    library_text = "" if library is None else library.load_and_describe_programs(import_from)
    return f"{description}\n\n{library_text}" if library_text else description


def add_saved_programs_to_catalog(
    catalog: ToolCatalog[PreparedTool],
    library: ProgramLibrary | None,
    js: str | None,
    call: CallContext,
    pool: WorkerPool | None,
    rules: StaticRules | None = None,
) -> ToolCatalog[PreparedTool]:
    """Return the tools of a run with the saved programs that it may call."""
    if library is None:
        return catalog
    from .saved_programs import add_saved_programs_to_catalog as add_saved

    return add_saved(catalog, library, js, call, pool, rules)
