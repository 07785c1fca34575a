"""Code mode as middleware of an agent: the model sees one tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from codemode import CodeModeOptions, WorkerPool
from codemode.plugins import Listing, StoreLike

from .approvals import ApprovalRules, InterruptMode
from .callers import Caller
from .channels import graph_state
from .chosen import InPrograms, Kept
from .faces import Face, for_agents
from .graph_state import in_graph, place_in
from .hiding_middleware import HidingMiddleware
from .neighbours import HidingWords
from .shown_tools import shown_to
from .tool import NAME, CodeModeFace, CodeModeTool

_WORDS = HidingWords(
    kind="CodeModeMiddleware",
    programs="programs",
    runs=NAME,
    limit="{'execution_policy': {'max_bridge_requests': ...}}",
    taken="another tool of the agent is called {name} too: give it another name",
    is_own=NAME.__eq__,
    adopts_reviews=True,
)


class CodeModeMiddleware(HidingMiddleware):
    """Shows the model ``codeMode`` in place of the agent's tools, except those in ``keep``.

    ``keep`` are tools that the model goes on calling directly, ``tools`` those that programs call: names, a mapping
    that a tool's metadata must hold, or a function of a tool; "all" for ``tools`` alone. One in both is called both
    ways, one in neither directly; without ``tools`` programs call all that are not kept. ``listing`` is
    ``execution_policy.listing``: what the model is told of the tools. ``approve``, ``interrupt_mode`` and ``store`` are
    as in `create_code_mode_tool`. What a `HumanInTheLoopMiddleware` of the agent reviews by name, as that of
    ``interrupt_on`` of a deep agent, waits for a person in programs too, and without ``interrupt_mode`` in the mode of
    that review. List it before middleware that is to see the nested calls. Raises `ValueError` for wrong options and
    for a tool in both ``keep`` and ``approve`` now, and when the agent is built for a name in ``keep``, ``tools`` or
    ``approve`` that fits no tool. Where other middleware may add one, a name in ``approve`` is told of in the log, and
    a program that begins without such a tool raises it. A run raises it before its model is asked for other middleware
    that would not see the nested calls it gates or stands in for, and `UnknownVersionError` where nobody can tell. A
    `ToolCallLimitMiddleware` of the agent counts nested calls too.

    Programs may call what the model was shown in the same step, and the model may call nothing else by itself than
    what is kept: it is told to call it from a program. An ``approve`` that is a function is asked about calls of kept
    tools too, and those that it would have approved are refused, for only programs wait for a person.
    """

    def __init__(
        self,
        *,
        options: CodeModeOptions | Mapping[str, Any] | None = None,
        tools: InPrograms | None = None,
        keep: Kept = (),
        approve: ApprovalRules | None = None,
        pool: WorkerPool | None = None,
        interrupt_mode: InterruptMode | None = None,
        listing: Listing | None = None,
        store: StoreLike | None = None,
    ) -> None:
        given = for_agents(options, pool=pool, listing=listing, store=store)
        self._options = given.having(state=in_graph) if given.state is None else given
        self._pool = pool
        super().__init__(_WORDS, keep, approve, interrupt_mode, tools)

    def _made_face(self, tools: Sequence[BaseTool]) -> Face:
        return CodeModeFace(tools, self._options, self._approvals, self._pool)

    def _own_tool(self, face: Face, request: ToolCallRequest, caller: Caller) -> BaseTool:
        is_in_graph = self._options.state is in_graph
        state = graph_state(cast("Any", request).runtime.config, request.state) if is_in_graph else None
        place = place_in(state, request.tool_call["id"] or "") if is_in_graph else None
        return CodeModeTool(cast("CodeModeFace", face), caller, place)

    def _refused(self, request: ToolCallRequest, names: set[str]) -> ToolMessage | None:
        name, tool = request.tool_call["name"], request.tool
        shown, gated = shown_to(request), any(map(self._approvals.may_ask, names))
        if (
            not gated
            and shown is not None
            and names <= {one for one in shown["native"] if not self._is_kept(one, request)}
        ):
            # A provider's own tool, whose calls other middleware or the tool node serves.
            return None
        in_programs = tool is not None if shown is None else name in shown["programs"]
        if tool is None and not gated and not in_programs:
            # Nobody here knows it: middleware listed later may, else the tool node says what there is.
            return None
        if in_programs:
            return self._error(
                request, f"{name} is not called directly: call it from a program, as tools.{name}(input)"
            )
        return self._error(request, f"{name} is not among the tools of this step")
