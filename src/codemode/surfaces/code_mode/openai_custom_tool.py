"""Offer codeMode as a custom tool of OpenAI's Responses API, with raw text input."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...data.narrowing import is_mapping
from ...errors import CodeModeError
from ...execution.call_context import CallContext
from ...execution.outcome_texts import failure_text
from ...host.sync import run_sync
from ...interrupts.interrupt import Interrupt

_RAW_TEXT = "\nThe input is the program itself, as plain text: no JSON around it, no escaping, no code fence."


class OpenAICustomTool:
    """codeMode for the Responses API: its definition and the answers to its calls.

    Create it with `CodeModeTool.as_openai_custom_tool`. Takes and returns plain dicts, so no SDK is needed; items may
    also be objects of the SDK.
    """

    def __init__(
        self,
        name: str,
        *,
        describe: Callable[[], str],
        execute: Callable[[str, CallContext], Awaitable[Any]],
        to_model_output: Callable[..., dict[str, Any]],
    ) -> None:
        self.name = name
        self._describe = describe
        self._execute = execute
        self._to_model_output = to_model_output

    @property
    def definition(self) -> dict[str, Any]:
        """The entry for ``tools`` of a request."""
        return {
            "type": "custom",
            "name": self.name,
            "description": self._describe() + _RAW_TEXT,
            "format": {"type": "text"},
        }

    def is_call(self, item: Any) -> bool:
        """Return True for an output item that calls this tool."""
        return (_get_field(item, "type"), _get_field(item, "name")) == ("custom_tool_call", self.name)

    async def answer(self, item: Any, call: CallContext | None = None) -> dict[str, Any] | Interrupt:
        """Run the program of a ``custom_tool_call`` and return the ``custom_tool_call_output`` for the next request.

        A failed program gives a text that tells the model why. A paused program gives its `Interrupt`, which is not for
        the model: pass what `CodeModeTool.resume` returns later to `output_item`. ``call`` is the call context; its
        ``tool_call_id`` defaults to the item's ``call_id``. Raises `ValueError` for an item that is not a call of this
        tool.
        """
        if not self.is_call(item):
            raise ValueError(
                f"expected an item of type 'custom_tool_call' for the tool {self.name!r}, got type"
                f" {_get_field(item, 'type')!r}, name {_get_field(item, 'name')!r}: see is_call"
            )
        program, call_id = _get_text_field(item, "input"), _get_text_field(item, "call_id")
        call = call or CallContext()
        if call.tool_call_id is None:
            call = dataclasses.replace(call, tool_call_id=call_id)
        try:
            result = await self._execute(program, call)
        except CodeModeError as error:
            return _build_output_item(call_id, failure_text(error, program))
        return result if isinstance(result, Interrupt) else self.output_item(call_id, result, call.tool_call_id)

    def answer_sync(self, item: Any, call: CallContext | None = None) -> dict[str, Any] | Interrupt:
        """Call `answer` from sync code."""
        return run_sync(self.answer(item, call))

    def output_item(self, call_id: str, result: Any, tool_call_id: str | None = None) -> dict[str, Any]:
        """Return the item that answers a call with a result. ``tool_call_id``: that of the run, default ``call_id``."""
        model_output = self._to_model_output(result, tool_call_id=tool_call_id or call_id)
        if model_output["type"] == "content":
            return _build_output_item(call_id, [_to_input_part(part) for part in model_output["value"]])
        value = model_output["value"]
        return _build_output_item(call_id, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _build_output_item(call_id: str, output: str | list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": output}


def _to_input_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a content part in the API's format: text, image or file."""
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    url = f"data:{part['mediaType']};base64,{part['data']}"
    if part["mediaType"].startswith("image/"):
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": "output", "file_data": url}


def _get_field(item: Any, name: str) -> Any:
    return item.get(name) if is_mapping(item) else getattr(item, name, None)


def _get_text_field(item: Any, name: str) -> str:
    value = _get_field(item, name)
    if not isinstance(value, str):
        raise ValueError(f"{name} of a custom_tool_call must be text, got {type(value).__name__}")  # noqa: TRY004 - ValueError, as for other inputs
    return value
