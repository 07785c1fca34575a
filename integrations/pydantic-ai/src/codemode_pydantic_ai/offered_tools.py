"""What a request offers a model, looked at when nobody changes it any more. Knows no surface."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

_TOOL_SEARCH = "tool_search"


@dataclass(init=False)
class CheckedModel(WrapperModel):
    """A model that is offered exactly certain tools, or not asked. ``offered`` gives their names, or None for any."""

    def __init__(self, wrapped: Model, offered: Callable[[], frozenset[str] | None]) -> None:
        super().__init__(wrapped)
        self._offered = offered

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make a request. Raises `UserError` for one that offers something else."""
        require_offered(model_request_parameters, self._offered())
        return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse, None]:
        """Make a request whose response is streamed. Raises as `request` does."""
        require_offered(model_request_parameters, self._offered())
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as response:
            yield response


def require_offered(parameters: ModelRequestParameters, offered: frozenset[str] | None) -> None:
    """Raise `UserError` unless exactly these tools are offered, beside those that take the run's output."""
    if offered is None:
        return
    searched = any(tool.with_native == _TOOL_SEARCH for tool in parameters.function_tools)
    native = {tool.kind for tool in parameters.native_tools if searched or tool.kind != _TOOL_SEARCH}
    found = {tool.name for tool in parameters.function_tools} | native
    added, missing = sorted(found - offered), sorted(offered - found)
    if not added and not missing:
        return
    said = [f"{', '.join(map(repr, added))} would be offered too"] if added else []
    said += [f"{', '.join(map(repr, missing))} would be missing"] if missing else []
    raise UserError(
        f"The model is to be offered exactly {', '.join(sorted(offered))}: {', and '.join(said)}. What the model calls"
        " itself is named in `direct`; what other capabilities add to a request, or take from it, is none of that."
    )
