"""Handle client requests for prompts, resources, completion and subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from codemode.data.narrowing import is_object, mapping_or_empty
from codemode.errors import CodeModeToolError

from ..gateway.principals import CallOrigin
from ..upstreams.connection import LOG_LEVELS_BY_VERBOSITY, describe_validation_error
from .client_requests import RequestDeclinedError, get_client_connection, to_client_request
from .proxy import PROMPTS, RESOURCES, TEMPLATES, ListKind, PassthroughProxy, get_capability
from .subscriptions import SubscriptionRefusedError, require_uris_within_limits
from .uri_routing import CursorError

GetPassthrough = Callable[[Any], Awaitable[PassthroughProxy]]
"""Returns the passthrough of a request's principal by its ``ServerRequestContext``. Must start no server."""

RESOURCE_NOT_FOUND = -32002
_PASSTHROUGH_CAPABILITIES = ("prompts", "resources", "completions", "logging")
_MAX_ROUNDS = 8
_UPSTREAM_STATE = "codemode-server:"
_MAX_STATE_CHARACTERS = 256_000
_MAX_QUESTIONS = 8
_GATEWAY_METHODS = ("server/discover", "subscriptions/listen")


def create_handlers(get_passthrough: GetPassthrough) -> dict[str, Any]:
    """Return the ``on_*`` arguments of the SDK's lowlevel ``Server``."""
    request_handlers = _PassthroughHandlers(get_passthrough)
    return {
        "on_list_prompts": request_handlers.list_prompts,
        "on_get_prompt": request_handlers.get_prompt,
        "on_list_resources": request_handlers.list_resources,
        "on_list_resource_templates": request_handlers.list_resource_templates,
        "on_read_resource": request_handlers.read_resource,
        "on_subscribe_resource": request_handlers.subscribe,
        "on_unsubscribe_resource": request_handlers.unsubscribe,
        "on_completion": request_handlers.complete_argument,
        "on_subscriptions_listen": request_handlers.listen,
    }


def add_log_level_handler(server: Any, get_passthrough: GetPassthrough) -> None:
    """Handle ``logging/setLevel``. The SDK's own argument for it logs a deprecation warning."""

    async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        await (await get_passthrough(ctx)).logs.subscribe_client(get_client_connection(ctx.session), params.level)
        return types.EmptyResult()

    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


def get_requested_log_level(ctx: Any) -> types.LoggingLevel | None:
    """Return the log level that a 2026-07-28 request asks for, or None."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or ctx.request_id is None:
        return None
    requested = None if ctx.meta is None else ctx.meta.get(types.LOG_LEVEL_META_KEY)
    if requested is None or ctx.method in _GATEWAY_METHODS:
        return None
    return next((level for level in LOG_LEVELS_BY_VERBOSITY if level == requested), None)


def create_capability_and_log_middleware(get_passthrough: GetPassthrough) -> Any:
    """Return a middleware that announces the capabilities of the servers.

    It also streams server logs to requests that ask for them.
    """

    async def apply_passthrough(ctx: Any, call_next: Any) -> Any:
        level = get_requested_log_level(ctx)
        if level is not None:
            async with (await get_passthrough(ctx)).logs.subscribe_request(ctx, level):
                return await call_next(ctx)
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized":
            (await get_passthrough(ctx)).register_client_for_roots(ctx.session)
        elif ctx.method in ("initialize", "server/discover") and is_object(result):
            gateway_capabilities = {**mapping_or_empty(result.get("capabilities"))}
            result["capabilities"] = {
                **gateway_capabilities,
                **_compute_passthrough_capabilities(await get_passthrough(ctx), gateway_capabilities),
            }
            for name in _PASSTHROUGH_CAPABILITIES:
                if result["capabilities"].get(name) is None:
                    result["capabilities"].pop(name, None)
        return result

    return apply_passthrough


def _compute_passthrough_capabilities(
    passthrough: PassthroughProxy, gateway_capabilities: dict[str, Any]
) -> dict[str, Any]:
    available = {name: passthrough.may_have_capability(name) for name in _PASSTHROUGH_CAPABILITIES}
    resources = {"subscribe": passthrough.can_subscribe, "listChanged": True}
    return {
        "prompts": {"listChanged": True} if available["prompts"] and "prompts" in gateway_capabilities else None,
        "resources": resources if available["resources"] and "resources" in gateway_capabilities else None,
        "completions": {} if available["completions"] and "completions" in gateway_capabilities else None,
        "logging": {} if available["logging"] and "logging" in gateway_capabilities else None,
    }


class _PassthroughHandlers:
    def __init__(self, get_passthrough: GetPassthrough) -> None:
        self._get_passthrough = get_passthrough

    async def list_prompts(self, ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        items, cursor = await self._get_page_and_subscribe(ctx, params, PROMPTS)
        return types.ListPromptsResult(prompts=items, next_cursor=cursor)

    async def list_resources(self, ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        items, cursor = await self._get_page_and_subscribe(ctx, params, RESOURCES)
        return types.ListResourcesResult(resources=items, next_cursor=cursor)

    async def list_resource_templates(
        self, ctx: Any, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        items, cursor = await self._get_page_and_subscribe(ctx, params, TEMPLATES)
        return types.ListResourceTemplatesResult(resource_templates=items, next_cursor=cursor)

    async def get_prompt(self, ctx: Any, params: types.GetPromptRequestParams) -> Any:
        passthrough = await self._get_passthrough(ctx)
        found = await passthrough.find_or_fetch_prompt_owner_and_name(params.name)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name[:200]!r}")
        upstream, name = found

        async def get_prompt_from(session: Any, **retry_arguments: Any) -> Any:
            return await session.get_prompt(name, params.arguments, allow_input_required=True, **retry_arguments)

        result = await _ForwardedRequest(passthrough, ctx, upstream).run_in_rounds(params, get_prompt_from)
        if isinstance(result, types.GetPromptResult):
            for message in result.messages:
                _register_and_replace_with_public_uris(passthrough, upstream.config.name, message.content)
        return result

    async def read_resource(self, ctx: Any, params: types.ReadResourceRequestParams) -> Any:
        passthrough = await self._get_passthrough(ctx)
        upstream, uri = await _require_resource_owner_and_uri(passthrough, ctx, params.uri)

        async def read_resource_from(session: Any, **retry_arguments: Any) -> Any:
            return await session.read_resource(uri, allow_input_required=True, **retry_arguments)

        try:
            result = await _ForwardedRequest(passthrough, ctx, upstream).run_in_rounds(params, read_resource_from)
        except MCPError as error:
            raise _resource_error(error, ctx, params.uri) from None
        if isinstance(result, types.ReadResourceResult):
            for content in result.contents:
                is_requested = content.uri == uri
                content.uri = (
                    params.uri
                    if is_requested
                    else passthrough.register_and_get_public_uri(upstream.config.name, content.uri)
                )
        return result

    async def complete_argument(self, ctx: Any, params: types.CompleteRequestParams) -> Any:
        passthrough = await self._get_passthrough(ctx)
        ref = params.ref
        if isinstance(ref, types.PromptReference):
            found = await passthrough.find_or_fetch_prompt_owner_and_name(ref.name)
            if found is None:
                raise MCPError(types.INVALID_PARAMS, f"there is no prompt {ref.name[:200]!r}")
            upstream, upstream_ref = found[0], ref.model_copy(update={"name": found[1]})
        else:
            upstream, uri = await _require_resource_owner_and_uri(passthrough, ctx, ref.uri)
            upstream_ref = ref.model_copy(update={"uri": uri})
        if get_capability(upstream, "completions") is None:
            return types.CompleteResult(completion=types.Completion(values=[]))
        context = params.context.arguments if params.context is not None else None
        argument = {"name": params.argument.name, "value": params.argument.value}
        return await _ForwardedRequest(passthrough, ctx, upstream).send_to_server(
            lambda session: session.complete(upstream_ref, argument, context)
        )

    async def subscribe(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        passthrough = await self._get_passthrough(ctx)
        upstream, uri = await _require_resource_owner_and_uri(passthrough, ctx, params.uri)
        await _subscribe_or_raise(passthrough, upstream, uri, params.uri, get_client_connection(ctx.session))
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        passthrough = await self._get_passthrough(ctx)
        passthrough.subscriptions.unsubscribe(get_client_connection(ctx.session), params.uri)
        return types.EmptyResult()

    async def listen(self, ctx: Any, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        passthrough = await self._get_passthrough(ctx)
        watcher, uris = object(), dict.fromkeys(params.notifications.resource_subscriptions or ())
        try:
            require_uris_within_limits(uris)
        except SubscriptionRefusedError as refusal:
            raise MCPError(types.INVALID_PARAMS, str(refusal)) from None
        try:
            for public in uris:
                found = await passthrough.find_or_fetch_resource_owner_and_uri(public)
                if found is not None:  # other resources never send notifications
                    await _subscribe_or_raise(passthrough, *found, public, watcher)
            return await passthrough.subscriptions.listening(ctx, params)
        finally:
            passthrough.subscriptions.unsubscribe(watcher)

    async def _get_page_and_subscribe(
        self, ctx: Any, params: types.PaginatedRequestParams | None, kind: ListKind
    ) -> tuple[list[Any], str | None]:
        passthrough = await self._get_passthrough(ctx)
        try:
            return await passthrough.get_page_and_subscribe(
                kind, params.cursor if params is not None else None, ctx.session
            )
        except CursorError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None


class _ForwardedRequest:
    """One client request that one server answers."""

    def __init__(self, passthrough: PassthroughProxy, ctx: Any, upstream: Any) -> None:
        self._passthrough = passthrough
        self._ctx = ctx
        self._upstream = upstream
        self._name: str = upstream.config.name
        self._origin = CallOrigin(session=ctx.session)

    async def run_in_rounds(self, params: Any, ask: Callable[..., Awaitable[Any]]) -> Any:
        """Return the server's answer, or its next question to the client."""
        return await self._passthrough.paused_requests.run_in_rounds(
            self._origin, params, lambda: self._send_and_answer_questions(params, ask)
        )

    async def send_to_server(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        """Return the server's answer. Raises `MCPError`, also when it is unreachable or too slow."""
        try:
            await self._upstream.session()  # starting has its own timeout
            async with self._passthrough.track_request_with_timeout(self._upstream, self._origin):
                return await self._upstream.ask(ask)
        except MCPError as error:
            raise self._passthrough.to_client_error(error, self._name) from None
        except TimeoutError:
            milliseconds = self._upstream.config.timeout_ms
            raise MCPError(types.REQUEST_TIMEOUT, f"{self._name}: it did not answer within {milliseconds} ms") from None
        except ValidationError as error:
            invalid = MCPError(types.INTERNAL_ERROR, f"its answer is invalid: {describe_validation_error(error)}")
            raise self._passthrough.to_client_error(invalid, self._name) from None
        except CodeModeToolError as error:  # it contains the reason
            raise MCPError(types.INTERNAL_ERROR, error.message) from None
        except Exception:  # noqa: BLE001 - what a transport raises is not for clients
            raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server cannot be reached") from None

    async def _send_and_answer_questions(self, params: Any, ask: Callable[..., Awaitable[Any]]) -> Any:
        state = params.request_state
        retry_arguments: dict[str, Any] = {}
        if state is not None and state.startswith(_UPSTREAM_STATE):
            retry_arguments = {
                "request_state": state[len(_UPSTREAM_STATE) :] or None,
                "input_responses": params.input_responses,
            }
        for _ in range(_MAX_ROUNDS):
            result = await self.send_to_server(
                lambda session, retry_arguments=retry_arguments: ask(session, **retry_arguments)
            )
            if not isinstance(result, types.InputRequiredResult):
                return result
            requests = self._to_client_requests(result)
            if self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                state = f"{_UPSTREAM_STATE}{result.request_state or ''}"
                return types.InputRequiredResult(input_requests=requests or None, request_state=state)
            retry_arguments = {"request_state": result.request_state, "input_responses": await self._ask_client(result)}
        raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server asks too often")

    def _to_client_requests(self, result: types.InputRequiredResult) -> dict[str, Any]:
        requests = result.input_requests or {}
        if len(requests) > _MAX_QUESTIONS or len(result.request_state or "") > _MAX_STATE_CHARACTERS:
            raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server asks too much at once")
        try:
            return {
                key: to_client_request(self._name, request.method, _params_to_json(request))
                for key, request in requests.items()
            }
        except RequestDeclinedError as refusal:
            raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server's request is declined: {refusal}") from None

    async def _ask_client(self, result: types.InputRequiredResult) -> dict[str, Any]:
        questions = self._passthrough.questions
        try:
            return {
                key: await questions.ask_client(self._name, request.method, _params_to_json(request), self._origin)
                for key, request in (result.input_requests or {}).items()
            }
        except RequestDeclinedError as refusal:
            raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server's request is declined: {refusal}") from None


def _params_to_json(request: Any) -> dict[str, Any]:
    params = request.params
    return {} if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _require_resource_owner_and_uri(passthrough: PassthroughProxy, ctx: Any, uri: str) -> tuple[Any, str]:
    found = await passthrough.find_or_fetch_resource_owner_and_uri(uri)
    if found is None:
        raise _resource_error(MCPError(RESOURCE_NOT_FOUND, f"no server has the resource {uri[:200]!r}"), ctx, uri)
    return found


def _resource_error(error: MCPError, ctx: Any, uri: str) -> MCPError:
    """Return the error for a missing resource with the code of the client's revision and the URI."""
    if error.code not in (RESOURCE_NOT_FOUND, types.INVALID_PARAMS):
        return error
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return MCPError(types.INVALID_PARAMS if is_modern else error.code, error.error.message, {"uri": uri[:2000]})


async def _subscribe_or_raise(
    passthrough: PassthroughProxy, upstream: Any, uri: str, public_uri: str, watcher: Any
) -> None:
    try:
        await passthrough.subscriptions.subscribe(upstream, uri, public_uri, watcher)
    except SubscriptionRefusedError as refusal:
        raise MCPError(types.INVALID_PARAMS, f"{upstream.config.name}: {refusal}") from None


def _register_and_replace_with_public_uris(passthrough: PassthroughProxy, server: str, content: Any) -> None:
    if isinstance(content, types.ResourceLink):
        content.uri = passthrough.register_and_get_public_uri(server, content.uri)
    elif isinstance(content, types.EmbeddedResource):
        content.resource.uri = passthrough.register_and_get_public_uri(server, content.resource.uri)
