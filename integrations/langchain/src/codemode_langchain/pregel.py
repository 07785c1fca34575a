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

_TAKEN = "codemode_interrupts"


def raise_interrupts(interrupts: Sequence[Any]) -> NoReturn:
    """End the node with these interrupts."""
    from langgraph.errors import GraphInterrupt

    raise GraphInterrupt(tuple(interrupts))


def interrupts_in(error: BaseException) -> tuple[Any, ...] | None:
    """Return what ``interrupt()`` raised, each once, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    raised = getattr(error, _TAKEN, error.args[0] if error.args else ())
    # A graph inside a graph reports an interrupt of a task twice: from the task, and from the node that it raised in.
    return tuple({one.id: one for one in raised}.values())


def take_interrupts(error: BaseException) -> tuple[Any, ...] | None:
    """Take what ``interrupt()`` raised out of a task's error, for who waits for the task reports it.

    Taken before the task has ended, it is not in the checkpoint either. `interrupts_in` finds it still.
    """
    found = interrupts_in(error)
    if found is not None:
        setattr(error, _TAKEN, found)
        error.args = ((),)
    return found


def command_in(error: BaseException) -> Any:
    """Return the command with which a graph inside a tool hands over to this one, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.ParentCommand):
        return None
    return replace(error.args[0], graph=None)


def is_wrong_answer(error: BaseException) -> bool:
    """True for the error of an answer that does not fit the response schema of its ``interrupt()``."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and bool(errors.is_invalid_resume(error))


# Knows no program, no tool and no question. What is read looks the same in the versions that `KNOWN` names, and
# whatever looks different is an error before anything runs: without it nobody could say that no call runs twice, or
# that whoever reviews calls sees them.

_log = logging.getLogger("codemode.tools")

KNOWN = {"langgraph": ((1, 2, 20), (1, 3)), "langchain": ((1, 4, 6), (1, 6))}
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
RUN = "00000000-0000-0000-0000-000000000000"  # the task of what a run was given
RETURN = "__return__"
OVERWRITE = "__overwrite__"
NAMESPACE = "checkpoint_ns"
CHECKPOINTS = "checkpoint_map"
HIDDEN = "langsmith:hidden"
INTERNAL = ("__", "branch:")  # how the names of channels begin that are no part of the state

_MOST_STEPS = 10_000


class UnknownVersionError(RuntimeError):
    """LangGraph or LangChain looks different inside from all versions that are known."""


@dataclass(frozen=True, kw_only=True)
class Inside:
    """One running node of a graph.

    ``node`` is its task, None once it has ended; ``start`` starts others with ``rest`` and ``settings``. ``loop`` goes
    over the steps of the graph. ``read`` reads ``channels`` as ``task`` sees them, ``send`` writes them.
    """

    node: Any
    start: Callable[..., Any]
    rest: tuple[Any, ...]
    settings: Mapping[str, Any]
    loop: Any
    scratchpad: Any
    channels: Mapping[str, Any]
    task: Any
    read: Any
    send: Callable[..., Any]

    @property
    def place(self) -> tuple[Any, int]:
        """The loop and the number of its step."""
        return self.loop, self.loop.step

    @property
    def keeps_checkpoints(self) -> bool:
        """True where questions of the graph have the same ids whenever it goes on."""
        return self.loop.checkpointer is not None

    @property
    def resumed_with(self) -> Any:
        """What ``Command(resume=...)`` gave to this run of the graph, None where it was given nothing."""
        from langgraph.types import Command

        with _known_shape("a running graph"):
            given = self.loop.input
            return cast("Any", given).resume if isinstance(given, Command) else None

    @property
    def is_resumed_by_id(self) -> bool:
        """True where `resumed_with` has answers by the ids of interrupts: LangGraph keeps none of those."""
        return self.loop.config["configurable"].get(RESUME_MAP) is self.resumed_with

    @property
    def waiting(self) -> dict[str, Any]:
        """The interrupts of the graph that wait for answers, by their ids."""
        with _known_shape("a running graph"):
            ids = self.loop._pending_interrupts()  # noqa: SLF001 - what LangGraph itself goes by
            raised = [value for _, channel, value in list(self.loop.checkpoint_pending_writes) if channel == INTERRUPT]
            return {one.id: one for value in raised for one in value if one.id in ids}

    def written_in_step(self) -> list[Any]:
        """Return the results that tasks of this step have left so far, also in earlier runs of it."""
        return [value for _, channel, value in list(self.loop.checkpoint_pending_writes) if channel == RETURN]

    def tool_nodes(self) -> list[Any]:
        """Return the nodes of the graph that call tools: an agent has one."""
        from langgraph.prebuilt import ToolNode

        with _known_shape("a graph"):
            return [one.bound for one in self.loop.nodes.values() if isinstance(one.bound, ToolNode)]

    def agent_of(self, own: object) -> tuple[Any, AgentParts]:
        """Return what the agent is made of whose middleware is ``own``, after the node of its tools.

        Raises `UnknownVersionError` where that middleware is not found in it.
        """
        with _known_shape("an agent"):
            for node in self.tool_nodes():
                hook = node._wrap_tool_call  # noqa: SLF001 - nothing else knows their order
                chain = [] if hook is None else [*_chained(hook)]
                if any(one is own for one in chain):
                    bound = [one.bound for one in self.loop.nodes.values()]
                    others = {id(one): one for other in bound for one in _middleware_in(other)}
                    beside = [one for one in others.values() if not any(one is other for other in chain)]
                    return node, AgentParts(tools=[*node.tools_by_name.values()], listed=(*chain, *beside))
        raise unknown(f"an agent with {type(own).__name__}")


@dataclass(frozen=True)
class AgentParts:
    """What `create_agent` has put together: all tools, and its middleware.

    First come those that wrap calls of tools, the outermost first, then the others.
    """

    tools: list[Any]
    listed: tuple[Any, ...]


def tool_nodes_in(graph: Any) -> list[Any]:
    """Return the nodes that call tools, of a graph and of those in it. Those that a node's own code calls are not seen.

    Raises `UnknownVersionError`.
    """
    from langgraph.prebuilt import ToolNode

    with _known_shape("a graph"):
        graphs = [graph, *(inner for _, inner in graph.get_subgraphs(recurse=True))]
        return [one.bound for each in graphs for one in each.nodes.values() if isinstance(one.bound, ToolNode)]


def is_in_node(config: RunnableConfig) -> bool:
    """True inside a LangGraph node, where results can be kept in the checkpoint."""
    return CALL in config.get("configurable", {})


def inside(config: RunnableConfig) -> Inside | None:
    """Return the node that runs with a configuration, None outside of one.

    Raises `UnknownVersionError` where it looks different from what is known. A version that nobody has tried is logged
    once.
    """
    if not is_in_node(config):
        return None
    tell_untried()
    configurable = config.get("configurable", {})
    with _known_shape("a running node"):
        call, read = configurable[CALL], configurable[READ]
        return Inside(
            node=call.args[0](),
            start=call.func,
            rest=call.args[1:],
            settings=call.keywords,
            loop=call.keywords["schedule_task"].__self__,
            scratchpad=configurable[SCRATCHPAD],
            channels=read.args[1],
            task=read.args[3],
            read=read,
            send=configurable[SEND],
        )


@functools.cache
def tell_untried() -> None:
    """Log which of the installed versions nobody has tried."""
    for name, (lowest, beyond) in KNOWN.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if not lowest <= _numbers(installed) < beyond:
            _log.warning("%s %s is not tried: codemode-langchain knows %s", name, installed, _known(name))


def _numbers(installed: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", installed)[:3])


def _known(name: str) -> str:
    lowest, beyond = (".".join(map(str, one)) for one in KNOWN[name])
    return f"{name}>={lowest},<{beyond}"


@contextmanager
def _known_shape(what: str) -> Generator[None]:
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise unknown(what) from error


def unknown(what: str) -> UnknownVersionError:
    """Return the error for what looks different."""
    known = ", ".join(map(_known, KNOWN))
    return UnknownVersionError(
        f"{what} looks different from what codemode-langchain knows ({known}), and nothing was run:"
        " install one of those versions"
    )


def _chained(hook: Any) -> Iterator[Any]:
    """Give what was put around calls of tools, the outermost first: `create_agent` composes two at a time."""
    own, inner = getattr(hook, "__self__", None), getattr(hook, "__wrapped__", None)
    if own is not None:
        yield own
    elif inner is not None:
        yield from _chained(inner)
    elif {"outer", "inner"} <= (held := _held(hook)).keys():
        yield from _chained(held["outer"])
        yield from _chained(held["inner"])
    else:
        yield hook  # a function of somebody's own


def _held(function: Any) -> dict[str, Any]:
    """Return what a function holds of those around it."""
    if not isinstance(function, FunctionType):
        return {}
    filled = (
        (name, cell) for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    held: dict[str, Any] = {}
    for name, cell in filled:
        try:
            held[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return held


def _middleware_in(node: Any) -> Iterator[Any]:
    """Give all middleware whose hooks a node runs, in no order."""
    from langchain.agents.middleware import AgentMiddleware

    todo, seen = [getattr(node, "func", None), getattr(node, "afunc", None)], set[int]()
    while todo and len(seen) < _MOST_STEPS:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        own = getattr(one, "__self__", None)
        if isinstance(own, AgentMiddleware):
            yield own
        elif callable(one):
            todo += [getattr(one, "__wrapped__", None), getattr(one, "func", None), *_held(one).values()]
