"""Access internals and interrupts of LangGraph and LangChain; the only module that does."""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType
from typing import Any, NoReturn, cast

from langchain_core.runnables import RunnableConfig

_TAKEN_ATTRIBUTE = "codemode_interrupts"


def raise_interrupts(interrupts: Sequence[Any]) -> NoReturn:
    """End the node with these interrupts."""
    from langgraph.errors import GraphInterrupt

    raise GraphInterrupt(tuple(interrupts))


def get_interrupts(error: BaseException) -> tuple[Any, ...] | None:
    """Return the interrupts of an error, without duplicates; None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    interrupts = getattr(error, _TAKEN_ATTRIBUTE, error.args[0] if error.args else ())
    # A graph inside a graph reports a task's interrupt twice: from the task and from its node.
    return tuple({interrupt.id: interrupt for interrupt in interrupts}.values())


def take_interrupts(error: BaseException) -> tuple[Any, ...] | None:
    """Remove the interrupts from a task's error, because the code that awaits the task reports them.

    Removed before the task ends, they are not saved in the checkpoint. `get_interrupts` still finds them.
    """
    interrupts = get_interrupts(error)
    if interrupts is not None:
        setattr(error, _TAKEN_ATTRIBUTE, interrupts)
        error.args = ((),)
    return interrupts


def get_parent_command(error: BaseException) -> Any:
    """Return the command with which a graph inside a tool hands over to this graph; None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.ParentCommand):
        return None
    return replace(error.args[0], graph=None)


def is_invalid_resume(error: BaseException) -> bool:
    """Return whether an error means that an answer does not match the schema of its ``interrupt()``."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and bool(errors.is_invalid_resume(error))


# The internals are the same in the versions of `TESTED_VERSIONS`. Different ones raise an error before anything runs,
# because no call may run twice or without review.

_log = logging.getLogger("codemode.tools")

TESTED_VERSIONS = {"langgraph": ((1, 2, 20), (1, 3)), "langchain": ((1, 4, 6), (1, 6))}
"""The lowest supported version of each, and the first untested one."""

CALL = "__pregel_call"
SCRATCHPAD = "__pregel_scratchpad"
RESUME_MAP = "__pregel_resume_map"
SEND = "__pregel_send"
READ = "__pregel_read"
CHECKPOINTER = "__pregel_checkpointer"
TASK_ID = "__pregel_task_id"
TASKS = "__pregel_tasks"
RESUME = "__resume__"
INTERRUPT = "__interrupt__"
RUN_TASK_ID = "00000000-0000-0000-0000-000000000000"  # the task id of a run's input
RETURN = "__return__"
OVERWRITE = "__overwrite__"
NAMESPACE = "checkpoint_ns"
CHECKPOINTS = "checkpoint_map"
HIDDEN = "langsmith:hidden"
INTERNAL_CHANNEL_PREFIXES = ("__", "branch:")  # channels that are not part of the state

_MAX_VISITED_OBJECTS = 10_000


class UnknownVersionError(RuntimeError):
    """The internals of LangGraph or LangChain differ from all supported versions."""


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """One running node of a graph.

    ``node``: its task, None after its end. ``start``: starts tasks with ``call_args`` and ``call_kwargs``. ``loop``:
    LangGraph's loop over the graph's steps. ``read``: reads ``channels`` as ``task`` sees them. ``send``: writes them.
    """

    node: Any
    start: Callable[..., Any]
    call_args: tuple[Any, ...]
    call_kwargs: Mapping[str, Any]
    loop: Any
    scratchpad: Any
    channels: Mapping[str, Any]
    task: Any
    read: Any
    send: Callable[..., Any]

    @property
    def step_id(self) -> tuple[Any, int]:
        """The loop and the number of its current step."""
        return self.loop, self.loop.step

    @property
    def keeps_checkpoints(self) -> bool:
        """True if interrupts of the graph keep their ids when it resumes."""
        return self.loop.checkpointer is not None

    @property
    def resume_value(self) -> Any:
        """The value of ``Command(resume=...)`` of this run; None without one."""
        from langgraph.types import Command

        with _convert_to_unsupported_version_error("a running graph"):
            graph_input = self.loop.input
            return cast("Any", graph_input).resume if isinstance(graph_input, Command) else None

    @property
    def has_resume_map(self) -> bool:
        """True if `resume_value` has answers by interrupt id, which LangGraph does not store."""
        return self.loop.config["configurable"].get(RESUME_MAP) is self.resume_value

    @property
    def pending_interrupts(self) -> dict[str, Any]:
        """The pending interrupts of the graph, by id."""
        with _convert_to_unsupported_version_error("a running graph"):
            ids = self.loop._pending_interrupts()  # noqa: SLF001 - LangGraph's own list
            written_values = [
                value for _, channel, value in list(self.loop.checkpoint_pending_writes) if channel == INTERRUPT
            ]
            return {interrupt.id: interrupt for value in written_values for interrupt in value if interrupt.id in ids}

    def get_step_results(self) -> list[Any]:
        """Return the results of this step's tasks so far, including earlier runs of the step."""
        return [value for _, channel, value in list(self.loop.checkpoint_pending_writes) if channel == RETURN]

    def find_tool_nodes(self) -> list[Any]:
        """Return the graph's tool nodes; an agent has one."""
        from langgraph.prebuilt import ToolNode

        with _convert_to_unsupported_version_error("a graph"):
            return [node.bound for node in self.loop.nodes.values() if isinstance(node.bound, ToolNode)]

    def find_tool_node_and_agent_parts(self, own: object) -> tuple[Any, AgentParts]:
        """Return the tool node and the parts of the agent whose middleware is ``own``.

        Raises `UnknownVersionError` if the middleware is not found.
        """
        with _convert_to_unsupported_version_error("an agent"):
            for node in self.find_tool_nodes():
                wrapper = node._wrap_tool_call  # noqa: SLF001 - the only source of their order
                wrapping_middleware = [] if wrapper is None else [*_iter_wrapping_middleware(wrapper)]
                if any(middleware is own for middleware in wrapping_middleware):
                    runnables = [middleware.bound for middleware in self.loop.nodes.values()]
                    by_id = {
                        id(middleware): middleware
                        for runnable in runnables
                        for middleware in _iter_hook_middleware(runnable)
                    }
                    other_middleware = [
                        middleware
                        for middleware in by_id.values()
                        if not any(middleware is runnable for runnable in wrapping_middleware)
                    ]
                    return node, AgentParts(
                        tools=[*node.tools_by_name.values()], middleware=(*wrapping_middleware, *other_middleware)
                    )
        raise make_unsupported_version_error(f"an agent with {type(own).__name__}")


@dataclass(frozen=True)
class AgentParts:
    """All tools and middleware of an agent: first middleware that wraps tool calls, outermost first, then the rest."""

    tools: list[Any]
    middleware: tuple[Any, ...]


def find_tool_nodes(graph: Any) -> list[Any]:
    """Return the tool nodes of a graph and its subgraphs, without graphs that a node's code calls.

    Raises `UnknownVersionError`.
    """
    from langgraph.prebuilt import ToolNode

    with _convert_to_unsupported_version_error("a graph"):
        all_graphs = [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]
        return [
            node.bound
            for subgraph in all_graphs
            for node in subgraph.nodes.values()
            if isinstance(node.bound, ToolNode)
        ]


def is_in_node(config: RunnableConfig) -> bool:
    """Return whether this is a configuration inside a LangGraph node, where results can be stored."""
    return CALL in config.get("configurable", {})


def get_node_context(config: RunnableConfig) -> NodeContext | None:
    """Return the node that runs with a configuration; None outside a node.

    Raises `UnknownVersionError` for unknown internals. Logs a warning for an untested version, once.
    """
    if not is_in_node(config):
        return None
    warn_about_untested_versions()
    configurable = config.get("configurable", {})
    with _convert_to_unsupported_version_error("a running node"):
        call, read = configurable[CALL], configurable[READ]
        return NodeContext(
            node=call.args[0](),
            start=call.func,
            call_args=call.args[1:],
            call_kwargs=call.keywords,
            loop=call.keywords["schedule_task"].__self__,
            scratchpad=configurable[SCRATCHPAD],
            channels=read.args[1],
            task=read.args[3],
            read=read,
            send=configurable[SEND],
        )


@functools.cache
def warn_about_untested_versions() -> None:
    """Log a warning for each untested installed version."""
    for name, (lowest, first_untested) in TESTED_VERSIONS.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if not lowest <= _parse_version(installed) < first_untested:
            _log.warning(
                "%s %s is untested: codemode-langchain supports %s", name, installed, _format_version_range(name)
            )


def _parse_version(installed: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", installed)[:3])


def _format_version_range(name: str) -> str:
    lowest, first_untested = (".".join(map(str, version_numbers)) for version_numbers in TESTED_VERSIONS[name])
    return f"{name}>={lowest},<{first_untested}"


@contextmanager
def _convert_to_unsupported_version_error(what: str) -> Generator[None]:
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise make_unsupported_version_error(what) from error


def make_unsupported_version_error(what: str) -> UnknownVersionError:
    """Return the error for unknown internals."""
    known = ", ".join(map(_format_version_range, TESTED_VERSIONS))
    return UnknownVersionError(
        f"{what} has internals that codemode-langchain does not know, and nothing was run: install {known}"
    )


def _iter_wrapping_middleware(hook: Any) -> Iterator[Any]:
    """Yield the middleware that wraps tool calls, outermost first: `create_agent` composes it pairwise."""
    middleware, inner = getattr(hook, "__self__", None), getattr(hook, "__wrapped__", None)
    if middleware is not None:
        yield middleware
    elif inner is not None:
        yield from _iter_wrapping_middleware(inner)
    elif {"outer", "inner"} <= (variables := _get_closure_variables(hook)).keys():
        yield from _iter_wrapping_middleware(variables["outer"])
        yield from _iter_wrapping_middleware(variables["inner"])
    else:
        yield hook  # a custom function


def _get_closure_variables(function: Any) -> dict[str, Any]:
    """Return the variables in a function's closure."""
    if not isinstance(function, FunctionType):
        return {}
    cells_by_name = (
        (name, cell) for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    variables: dict[str, Any] = {}
    for name, cell in cells_by_name:
        try:
            variables[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return variables


def _iter_hook_middleware(node: Any) -> Iterator[Any]:
    """Yield all middleware whose hooks a node runs, in no order."""
    from langchain.agents.middleware import AgentMiddleware

    pending, seen = [getattr(node, "func", None), getattr(node, "afunc", None)], set[int]()
    while pending and len(seen) < _MAX_VISITED_OBJECTS:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        own = getattr(current, "__self__", None)
        if isinstance(own, AgentMiddleware):
            yield own
        elif callable(current):
            pending += [
                getattr(current, "__wrapped__", None),
                getattr(current, "func", None),
                *_get_closure_variables(current).values(),
            ]
