"""CodeCall as middleware of an agent: the model sees the meta-tools, whatever the number of tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from codemode import CodeCallOptions, WorkerPool
from codemode.plugins import StoreLike, looks_like_meta_tool

from .approvals import ApprovalRules, InterruptMode
from .callers import Caller
from .chosen import Kept
from .code_call import CodeCallFace, ScriptContext, no_tools
from .faces import Face, as_tools
from .hiding_middleware import HidingMiddleware
from .neighbours import HidingWords
from .shown_tools import shown_to


class CodeCallMiddleware(HidingMiddleware):
    """Shows the model search, describe, execute and, where direct calls are enabled, invoke.

    They stand in place of the agent's tools, except those named in ``keep`` and what ``options`` leave visible.
    ``options`` are as in `create_code_call_tools`, ``approve``, ``interrupt_mode``, ``pool`` and ``store`` too;
    ``script_context`` makes a script's context of the agent's ``ToolRuntime``. List it before middleware that is to see
    the nested calls. Raises `ValueError` as `CodeModeMiddleware` does, and when the agent is built for what is wrong
    with one of its tools.

    Scripts and direct calls reach what the model was shown in the same step. The model may call nothing else by itself
    than what stays with it: any other name has one answer, registered or not. Of what is visible, calls that need
    approval are refused there, for only scripts and direct calls wait for a person.
    """

    def __init__(
        self,
        *,
        options: CodeCallOptions | Mapping[str, Any] | None = None,
        keep: Kept = (),
        approve: ApprovalRules | None = None,
        script_context: ScriptContext | None = None,
        pool: WorkerPool | None = None,
        interrupt_mode: InterruptMode = "per_call",
        store: StoreLike | None = None,
    ) -> None:
        self._core = no_tools(options, pool, store)
        self._newest: CodeCallFace | None = None
        self._script_context = script_context
        search, _, execute, *_ = [one.name for one in self._core.tools]
        self._advice = f"find tools with {search} and call them in a script of {execute}"
        words = HidingWords(
            kind="CodeCallMiddleware",
            programs="scripts",
            runs=execute,
            limit="{'vm': {'max_steps': ...}}",
            taken="another tool of the agent is called {name}, as the tools of CodeCall are: give it another name",
            is_own=looks_like_meta_tool,
        )
        super().__init__(words, keep, approve, interrupt_mode)

    def _made_face(self, tools: Sequence[BaseTool]) -> CodeCallFace:
        # What was indexed and embedded for another step, or for another conversation, is not again.
        self._newest = CodeCallFace(tools, self._core, self._approvals, self._newest)
        return self._newest

    def _own_tool(self, face: Face, request: ToolCallRequest, caller: Caller) -> BaseTool:
        make, runtime = self._script_context, cast("Any", request).runtime
        script_context = None if make is None else partial(make, runtime)
        return cast("CodeCallFace", face).own_tool(request.tool_call["name"], caller, script_context)

    def _seen_alone(self, tools: Iterable[Any]) -> frozenset[str]:
        face = cast("CodeCallFace", self._face(self._hidden(as_tools(tools))))
        alone = frozenset(name for name in face.visible() if name not in face.awaiting)
        self._approvals.refuse_alone(alone)
        return alone

    def _may_call(self, names: Collection[str], request: ToolCallRequest) -> bool:
        shown = shown_to(request)
        visible = self._visible(request) if shown is None else shown["native"]
        return all(self._is_kept(name, request) or name in visible for name in names)

    def _visible(self, request: ToolCallRequest) -> Collection[str]:
        return self._face(self._called_from(request)[1]).visible()

    def _refused(self, request: ToolCallRequest, names: set[str]) -> ToolMessage:  # noqa: ARG002 - as above
        # The tool node would list all that there is, hidden or not.
        name = request.tool_call["name"]
        return self._error(request, f"there is no tool {name!r} to call directly: {self._advice}")
