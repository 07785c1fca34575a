"""The second use of a program: what a model writes once the program of a task is saved."""

from __future__ import annotations

from codemode import CodeModeTool, ProgramLibrary, WorkerPool, create_code_mode_tool
from codemode.stores import MemoryInterruptStore

from .catalog import Catalog
from .tasks import TASKS, Task
from .transcript import Transcript, compact, result_text

# By the name of a saved program, the task whose last program it is.
SAVED = {"failing_checks": "checks that fail", "unapproved_pull_requests": "pull requests nobody approved"}
MAX_TOKENS_OUT = 150


async def played_again(pool: WorkerPool) -> dict[str, Transcript]:
    """Return, by task, the conversation of a model that finds its program saved; what it knows is what it knew before.

    Raises `ValueError` where the saved program gives something else.
    """
    catalog, library = Catalog(), ProgramLibrary(MemoryInterruptStore(), pool=pool)
    fresh = create_code_mode_tool(catalog.tools, pool=pool)
    tool = create_code_mode_tool(catalog.tools, pool=pool, library=library)
    by_name = {task.name: task for task in TASKS}
    for name, task_name in SAVED.items():
        await library.save(name, by_name[task_name].programs[-1], description=by_name[task_name].question)
    return {task: await _again(name, by_name[task], catalog, fresh, tool) for name, task in SAVED.items()}


async def _again(name: str, task: Task, catalog: Catalog, fresh: CodeModeTool, tool: CodeModeTool) -> Transcript:
    catalog.begin()
    before = await fresh.execute(task.programs[-1])
    catalog.begin()
    js = f"return await saved.{name}();"
    value = await tool.execute(js)
    if value != before:
        raise ValueError(f"{task.name}: the saved program gives {value!r}, the program itself {before!r}")
    listing = compact([{"name": tool.name, "description": tool.description, "parameters": tool.input_schema}])
    transcript = Transcript(listing, task.question)
    transcript.call((tool.name, {"js": js}, result_text(tool.to_model_output(value)["value"])))
    transcript.answer(task.answer(task.read(value)))
    return transcript
