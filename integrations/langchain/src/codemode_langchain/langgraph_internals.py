"""What this package reads of LangGraph's and LangChain's internals, and their interrupts."""

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
    """Return what ``interrupt()`` raised, each once, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    interrupts = getattr(error, _TAKEN_ATTRIBUTE, error.args[0] if error.args else ())
    # A graph inside a graph reports an interrupt of a task twice: from the task, and from the node that it raised in.
    return tuple({interrupt.id: interrupt for interrupt in interrupts}.values())


def take_interrupts(error: BaseException) -> tuple[Any, ...] | None:
    """Take what ``interrupt()`` raised out of a task's error, for who waits for the task reports it.

    Taken before the task has ended, it is not in the checkpoint either. `interrupts_in` finds it still.
    """
    interrupts = get_interrupts(error)
    if interrupts is not None:
        setattr(error, _TAKEN_ATTRIBUTE, interrupts)
        error.args = ((),)
    return interrupts


def get_parent_command(error: BaseException) -> Any:
    """Return the command with which a graph inside a tool hands over to this one, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.ParentCommand):
        return None
    return replace(error.args[0], graph=None)


def is_invalid_resume(error: BaseException) -> bool:
    """True for the error of an answer that does not fit the response schema of its ``interrupt()``."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and bool(errors.is_invalid_resume(error))


# Knows no program, no tool and no question. What is read looks the same in the versions that `KNOWN` names, and
# whatever looks different is an error before anything runs: without it nobody could say that no call runs twice, or
# that whoever reviews calls sees them.

_log = logging.getLogger("codemode.tools")

TESTED_VERSIONS = {"langgraph": ((1, 2, 20), (1, 3)), "langchain": ((1, 4, 6), (1, 6))}
"""The lowest version of each that looks like this, and the first one that nobody has tried."""

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
RUN_TASK_ID = "00000000-0000-0000-0000-000000000000"  # the task of what a run was given
RETURN = "__return__"
OVERWRITE = "__overwrite__"
NAMESPACE = "checkpoint_ns"
CHECKPOINTS = "checkpoint_map"
HIDDEN = "langsmith:hidden"
INTERNAL_CHANNEL_PREFIXES = ("__", "branch:")  # how the names of channels begin that are no part of the state

_MAX_VISITED_OBJECTS = 10_000


class UnknownVersionError(RuntimeError):
    """LangGraph or LangChain looks different inside from all versions that are known."""


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """One running node of a graph.

    ``node`` is its task, None once it has ended; ``start`` starts others with ``rest`` and ``settings``. ``loop`` goes
    over the steps of the graph. ``read`` reads ``channels`` as ``task`` sees them, ``send`` writes them.
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
        """The loop and the number of its step."""
        return self.loop, self.loop.step

    @property
    def keeps_checkpoints(self) -> bool:
        """True where questions of the graph have the same ids whenever it goes on."""
        return self.loop.checkpointer is not None

    @property
    def resume_value(self) -> Any:
        """What ``Command(resume=...)`` gave to this run of the graph, None where it was given nothing."""
        from langgraph.types import Command

        with _expect_known_internals("a running graph"):
            graph_input = self.loop.input
            return cast("Any", graph_input).resume if isinstance(graph_input, Command) else None

    @property
    def has_resume_map(self) -> bool:
        """True where `resumed_with` has answers by the ids of interrupts: LangGraph keeps none of those."""
        return self.loop.config["configurable"].get(RESUME_MAP) is self.resume_value

    @property
    def pending_interrupts(self) -> dict[str, Any]:
        """The interrupts of the graph that wait for answers, by their ids."""
        with _expect_known_internals("a running graph"):
            ids = self.loop._pending_interrupts()  # noqa: SLF001 - what LangGraph itself goes by
            written_values = [
                value for _, channel, value in list(self.loop.checkpoint_pending_writes) if channel == INTERRUPT
            ]
            return {interrupt.id: interrupt for value in written_values for interrupt in value if interrupt.id in ids}

    def get_step_results(self) -> list[Any]:
        """Return the results that tasks of this step have left so far, also in earlier runs of it."""
        return [value for _, channel, value in list(self.loop.checkpoint_pending_writes) if channel == RETURN]

    def find_tool_nodes(self) -> list[Any]:
        """Return the nodes of the graph that call tools: an agent has one."""
        from langgraph.prebuilt import ToolNode

        with _expect_known_internals("a graph"):
            return [node.bound for node in self.loop.nodes.values() if isinstance(node.bound, ToolNode)]

    def find_agent(self, own: object) -> tuple[Any, AgentParts]:
        """Return what the agent is made of whose middleware is ``own``, after the node of its tools.

        Raises `UnknownVersionError` where that middleware is not found in it.
        """
        with _expect_known_internals("an agent"):
            for node in self.find_tool_nodes():
                wrapper = node._wrap_tool_call  # noqa: SLF001 - nothing else knows their order
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
        raise make_unknown_version_error(f"an agent with {type(own).__name__}")


@dataclass(frozen=True)
class AgentParts:
    """What `create_agent` has put together: all tools, and its middleware.

    First come those that wrap calls of tools, the outermost first, then the others.
    """

    tools: list[Any]
    middleware: tuple[Any, ...]


def find_tool_nodes(graph: Any) -> list[Any]:
    """Return the nodes that call tools, of a graph and of those in it. Those that a node's own code calls are not seen.

    Raises `UnknownVersionError`.
    """
    from langgraph.prebuilt import ToolNode

    with _expect_known_internals("a graph"):
        all_graphs = [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]
        return [
            node.bound
            for subgraph in all_graphs
            for node in subgraph.nodes.values()
            if isinstance(node.bound, ToolNode)
        ]


def is_in_node(config: RunnableConfig) -> bool:
    """True inside a LangGraph node, where results can be kept in the checkpoint."""
    return CALL in config.get("configurable", {})


def get_node_context(config: RunnableConfig) -> NodeContext | None:
    """Return the node that runs with a configuration, None outside of one.

    Raises `UnknownVersionError` where it looks different from what is known. A version that nobody has tried is logged
    once.
    """
    if not is_in_node(config):
        return None
    warn_about_untested_versions()
    configurable = config.get("configurable", {})
    with _expect_known_internals("a running node"):
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
    """Log which of the installed versions nobody has tried."""
    for name, (lowest, first_untested) in TESTED_VERSIONS.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if not lowest <= _parse_version(installed) < first_untested:
            _log.warning("%s %s is not tried: codemode-langchain knows %s", name, installed, _version_range(name))


def _parse_version(installed: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", installed)[:3])


def _version_range(name: str) -> str:
    lowest, first_untested = (".".join(map(str, version_numbers)) for version_numbers in TESTED_VERSIONS[name])
    return f"{name}>={lowest},<{first_untested}"


@contextmanager
def _expect_known_internals(what: str) -> Generator[None]:
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise make_unknown_version_error(what) from error


def make_unknown_version_error(what: str) -> UnknownVersionError:
    """Return the error for what looks different."""
    known = ", ".join(map(_version_range, TESTED_VERSIONS))
    return UnknownVersionError(
        f"{what} looks different from what codemode-langchain knows ({known}), and nothing was run:"
        " install one of those versions"
    )


def _iter_wrapping_middleware(hook: Any) -> Iterator[Any]:
    """Give what was put around calls of tools, the outermost first: `create_agent` composes two at a time."""
    middleware, inner = getattr(hook, "__self__", None), getattr(hook, "__wrapped__", None)
    if middleware is not None:
        yield middleware
    elif inner is not None:
        yield from _iter_wrapping_middleware(inner)
    elif {"outer", "inner"} <= (variables := _closure_variables(hook)).keys():
        yield from _iter_wrapping_middleware(variables["outer"])
        yield from _iter_wrapping_middleware(variables["inner"])
    else:
        yield hook  # a function of somebody's own


def _closure_variables(function: Any) -> dict[str, Any]:
    """Return what a function holds of those around it."""
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
    """Give all middleware whose hooks a node runs, in no order."""
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
                *_closure_variables(current).values(),
            ]
