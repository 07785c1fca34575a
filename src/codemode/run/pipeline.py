"""The host's pipeline around one call of a tool: what its hooks make of input and output. Knows no order of calls.

A hook is given copies, and what it returns is checked as if the program or the tool had given it. It fails closed: a
call that a hook could not judge does not go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..data.json_shape import weigh
from ..data.json_values import decode_json, encode_json
from ..errors import CodeModeProtocolError, CodeModeSerializationError, CodeModeToolError
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import CodeModeOptions
from ..protocol.ledger import LedgerEntry
from ..tools.pipeline import PIPELINE_NULL, PipelineCall
from ..tools.prepared import PreparedTool
from ..tools.running import run_hook
from ..tools.unquoted import without_quotes
from ..tools.unread_outputs import UnreadOutput
from .allowed_input import CheckedInput, shown_of
from .call_values import read_text
from .host_code import HostRaised, hidden_hook, hooked

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads

ResultT = TypeVar("ResultT")


class CallPipeline:
    """Asks the hooks about one call. ``made`` gives a `PipelineCall` with a copy of the input."""

    def __init__(
        self,
        options: CodeModeOptions,
        threads: InvocationThreads,
        tool: PreparedTool,
        entry: LedgerEntry,
        made: Callable[[Any], PipelineCall],
    ) -> None:
        self._hooks = options.pipeline
        self._policy = options.execution_policy
        self._threads = threads
        self._tool = tool
        self._entry = entry
        self._made = made

    @property
    def judges_inputs(self) -> bool:
        """True when an input may come to another one than its program gave."""
        return self._hooks.before is not None

    @property
    def judges_outputs(self) -> bool:
        """Whether hooks may replace outputs."""
        return self._hooks.after is not None

    async def unquoted(self, side: Literal["input", "output"], check: Awaitable[ResultT]) -> ResultT:
        """Await the check of a value. What it says of one that a hook has yet to judge quotes nothing of it."""
        if (self._hooks.before if side == "input" else self._hooks.after) is None:
            return await check
        try:
            return await check
        except (CodeModeProtocolError, HostRaised, UnreadOutput):
            raise
        except Exception as error:  # noqa: BLE001 - validators and serialisers are host code too
            raise await run_check(0, partial(without_quotes, error, self._tool, side)) from None

    async def before(self, checked: CheckedInput) -> CheckedInput:
        """Return the input with which the call goes on. Raises what refuses it."""
        given = await self._ask(self._hooks.before, await self._call(checked.shown_json))
        return checked if given is None else await self._off_loop(given, self._replaced)

    async def edited(self, value: Any) -> CheckedInput:
        """Validate an input that a person has edited while the tool itself asked for that."""
        return await self.unquoted("input", self._off_loop(value, self._replaced))

    async def require_allowed(self, checked: CheckedInput) -> None:
        """Ask about an input that a person has edited, and that is no longer anybody's to change: raise a refusal."""
        allowed = await self.before(checked)
        if allowed.shown_json != checked.shown_json:
            raise CodeModeToolError(
                f"the edited input of tool {self._tool.name!r} is refused: the host would not run it unchanged",
                details={"tool_name": self._tool.name, "tool_call_id": self._entry.tool_call_id},
            )

    async def after(self, checked: CheckedInput, text: str | None) -> str | None:
        """Return the JSON text of the output that the program gets; None is undefined."""
        output = None if text is None else await read_text(text)
        given = await self._ask(self._hooks.after, await self._call(checked.shown_json), output)
        return text if given is None else await self._off_loop(given, self._written)

    async def _ask(self, hook: Callable[..., Any] | None, *arguments: Any) -> Any:
        if hook is None:
            return None
        work = run_hook(hook, arguments, self._threads, self._tool.name, self._entry.tool_call_id or "")
        return await hooked(self._entry, work)

    async def _call(self, shown_json: str | None) -> PipelineCall:
        return self._made(None if shown_json is None else await read_text(shown_json))

    async def _off_loop(self, given: Any, work: Callable[[Any], Any]) -> Any:
        value = None if given is PIPELINE_NULL else given
        return await run_check(weigh(value, LARGE_CHARACTERS), partial(work, value))

    def _replaced(self, value: Any) -> CheckedInput:
        what, policy = f"the input put in place of another for tool {self._tool.name!r}", self._policy
        sidecar = self._entry.sidecar
        max_bytes = policy.max_tool_input_bytes + (0 if sidecar is None else sidecar.max_total_bytes)
        try:
            text = encode_json(value, max_bytes=max_bytes, max_values=policy.max_values, what=what)
            plain = decode_json(text)
        except (CodeModeSerializationError, ValueError) as error:
            raise HostRaised(hidden_hook(self._entry, error)) from error
        validated = self._tool.validate_input(plain)
        return CheckedInput(validated, shown_of(validated))

    def _written(self, value: Any) -> str:
        what, policy = f"the output of tool {self._tool.name!r}", self._policy
        return encode_json(value, max_bytes=policy.max_tool_output_bytes, max_values=policy.max_values, what=what)
