"""The handlers with which the gateway's server passes prompts and resources through, in both eras of the protocol."""

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
from ..upstreams.connection import LEVELS, why_invalid
from .client_requests import Declined, connection_of, worded
from .proxy import PROMPTS, RESOURCES, TEMPLATES, Kind, Passed, capability_of
from .subscriptions import NotWatched, require_short
from .uri_routing import CursorError

PassedOf = Callable[[Any], Awaitable[Passed]]
"""Gives what the principal of a request is passed, by its ``ServerRequestContext``. Must start no server."""

RESOURCE_NOT_FOUND = -32002
_ANNOUNCED = ("prompts", "resources", "completions", "logging")
_MAX_ROUNDS = 8
_UPSTREAM_STATE = "codemode-server:"
_MAX_STATE_CHARACTERS = 256_000
_MAX_QUESTIONS = 8
_NOT_ABOUT_SERVERS = ("server/discover", "subscriptions/listen")


def handlers(passed_of: PassedOf) -> dict[str, Any]:
    """Return the ``on_*`` arguments of the SDK's lowlevel ``Server``. `announcing` is a middleware of the same."""
    of = _Handlers(passed_of)
    return {
        "on_list_prompts": of.list_prompts,
        "on_get_prompt": of.get_prompt,
        "on_list_resources": of.list_resources,
        "on_list_resource_templates": of.list_resource_templates,
        "on_read_resource": of.read_resource,
        "on_subscribe_resource": of.subscribe,
        "on_unsubscribe_resource": of.unsubscribe,
        "on_completion": of.complete,
        "on_subscriptions_listen": of.listen,
    }


def pass_logs(server: Any, passed_of: PassedOf) -> None:
    """Let clients say from which level on they hear what servers log. The argument of the SDK for that warns."""

    async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        await (await passed_of(ctx)).logs.hear(connection_of(ctx.session), params.level)
        return types.EmptyResult()

    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


def level_asked(ctx: Any) -> types.LoggingLevel | None:
    """Return from which level on a request of 2026-07-28 hears what servers log; None: it has not asked."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or ctx.request_id is None:
        return None
    asked = None if ctx.meta is None else ctx.meta.get(types.LOG_LEVEL_META_KEY)
    if asked is None or ctx.method in _NOT_ABOUT_SERVERS:
        return None
    return next((level for level in LEVELS if level == asked), None)


def announcing(passed_of: PassedOf) -> Any:
    """Return a middleware that announces of what `handlers` pass through that which some server behind may have.

    It also lets requests hear what servers log, where they ask for it.
    """

    async def announce(ctx: Any, call_next: Any) -> Any:
        level = level_asked(ctx)
        if level is not None:
            async with (await passed_of(ctx)).logs.hearing(ctx, level):
                return await call_next(ctx)
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized":
            (await passed_of(ctx)).joined(ctx.session)
        elif ctx.method in ("initialize", "server/discover") and is_object(result):
            said = {**mapping_or_empty(result.get("capabilities"))}
            result["capabilities"] = {**said, **_capabilities(await passed_of(ctx), said)}
            for name in _ANNOUNCED:
                if result["capabilities"].get(name) is None:
                    result["capabilities"].pop(name, None)
        return result

    return announce


def _capabilities(passed: Passed, said: dict[str, Any]) -> dict[str, Any]:
    able = {name: passed.can(name) for name in _ANNOUNCED}
    resources = {"subscribe": passed.can_subscribe, "listChanged": True}
    return {
        "prompts": {"listChanged": True} if able["prompts"] and "prompts" in said else None,
        "resources": resources if able["resources"] and "resources" in said else None,
        "completions": {} if able["completions"] and "completions" in said else None,
        "logging": {} if able["logging"] and "logging" in said else None,
    }


class _Handlers:
    def __init__(self, passed_of: PassedOf) -> None:
        self._passed_of = passed_of

    async def list_prompts(self, ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        items, cursor = await self._page(ctx, params, PROMPTS)
        return types.ListPromptsResult(prompts=items, next_cursor=cursor)

    async def list_resources(self, ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        items, cursor = await self._page(ctx, params, RESOURCES)
        return types.ListResourcesResult(resources=items, next_cursor=cursor)

    async def list_resource_templates(
        self, ctx: Any, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        items, cursor = await self._page(ctx, params, TEMPLATES)
        return types.ListResourceTemplatesResult(resource_templates=items, next_cursor=cursor)

    async def get_prompt(self, ctx: Any, params: types.GetPromptRequestParams) -> Any:
        passed = await self._passed_of(ctx)
        found = await passed.prompt(params.name)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name[:200]!r}")
        upstream, name = found

        async def get(session: Any, **again: Any) -> Any:
            return await session.get_prompt(name, params.arguments, allow_input_required=True, **again)

        result = await _Request(passed, ctx, upstream).answered(params, get)
        if isinstance(result, types.GetPromptResult):
            for message in result.messages:
                _relink(passed, upstream.config.name, message.content)
        return result

    async def read_resource(self, ctx: Any, params: types.ReadResourceRequestParams) -> Any:
        passed = await self._passed_of(ctx)
        upstream, uri = await _resource(passed, ctx, params.uri)

        async def read(session: Any, **again: Any) -> Any:
            return await session.read_resource(uri, allow_input_required=True, **again)

        try:
            result = await _Request(passed, ctx, upstream).answered(params, read)
        except MCPError as error:
            raise _about(error, ctx, params.uri) from None
        if isinstance(result, types.ReadResourceResult):
            for one in result.contents:
                is_it = one.uri == uri
                one.uri = params.uri if is_it else passed.linked(upstream.config.name, one.uri)
        return result

    async def complete(self, ctx: Any, params: types.CompleteRequestParams) -> Any:
        passed = await self._passed_of(ctx)
        ref = params.ref
        if isinstance(ref, types.PromptReference):
            found = await passed.prompt(ref.name)
            if found is None:
                raise MCPError(types.INVALID_PARAMS, f"there is no prompt {ref.name[:200]!r}")
            upstream, own = found[0], ref.model_copy(update={"name": found[1]})
        else:
            upstream, uri = await _resource(passed, ctx, ref.uri)
            own = ref.model_copy(update={"uri": uri})
        if capability_of(upstream, "completions") is None:
            return types.CompleteResult(completion=types.Completion(values=[]))
        context = params.context.arguments if params.context is not None else None
        argument = {"name": params.argument.name, "value": params.argument.value}
        return await _Request(passed, ctx, upstream).sent(lambda session: session.complete(own, argument, context))

    async def subscribe(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        passed = await self._passed_of(ctx)
        upstream, uri = await _resource(passed, ctx, params.uri)
        await _watch(passed, upstream, uri, params.uri, connection_of(ctx.session))
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        passed = await self._passed_of(ctx)
        passed.watching.forget(connection_of(ctx.session), params.uri)
        return types.EmptyResult()

    async def listen(self, ctx: Any, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        passed = await self._passed_of(ctx)
        watcher, wanted = object(), dict.fromkeys(params.notifications.resource_subscriptions or ())
        try:
            require_short(wanted)
        except NotWatched as why:
            raise MCPError(types.INVALID_PARAMS, str(why)) from None
        try:
            for public in wanted:
                found = await passed.resource(public)
                if found is not None:  # of what nobody has nothing is ever told
                    await _watch(passed, *found, public, watcher)
            return await passed.watching.listening(ctx, params)
        finally:
            passed.watching.forget(watcher)

    async def _page(
        self, ctx: Any, params: types.PaginatedRequestParams | None, kind: Kind
    ) -> tuple[list[Any], str | None]:
        passed = await self._passed_of(ctx)
        try:
            return await passed.page(kind, params.cursor if params is not None else None, ctx.session)
        except CursorError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None


class _Request:
    """One request of a client that one server answers."""

    def __init__(self, passed: Passed, ctx: Any, upstream: Any) -> None:
        self._passed = passed
        self._ctx = ctx
        self._upstream = upstream
        self._name: str = upstream.config.name
        self._origin = CallOrigin(session=ctx.session)

    async def answered(self, params: Any, ask: Callable[..., Awaitable[Any]]) -> Any:
        """Return what the server gives, after its questions have been answered or as its next question."""
        return await self._passed.held.answered(self._origin, params, lambda: self._asked(params, ask))

    async def sent(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        """Return what the server gives. Raises `MCPError`, also where it cannot be reached or takes too long."""
        try:
            await self._upstream.session()  # a start has its own time
            async with self._passed.in_flight(self._upstream, self._origin):
                return await self._upstream.ask(ask)
        except MCPError as error:
            raise self._passed.said(error, self._name) from None
        except TimeoutError:
            milliseconds = self._upstream.config.timeout_ms
            raise MCPError(types.REQUEST_TIMEOUT, f"{self._name}: it did not answer within {milliseconds} ms") from None
        except ValidationError as error:
            wrong = MCPError(types.INTERNAL_ERROR, f"its answer is not valid: {why_invalid(error)}")
            raise self._passed.said(wrong, self._name) from None
        except CodeModeToolError as error:  # which says why the server cannot be used
            raise MCPError(types.INTERNAL_ERROR, error.message) from None
        except Exception:  # noqa: BLE001 - what a transport raises is not for clients
            raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server cannot be reached") from None

    async def _asked(self, params: Any, ask: Callable[..., Awaitable[Any]]) -> Any:
        state = params.request_state
        again: dict[str, Any] = {}
        if state is not None and state.startswith(_UPSTREAM_STATE):
            again = {
                "request_state": state[len(_UPSTREAM_STATE) :] or None,
                "input_responses": params.input_responses,
            }
        for _ in range(_MAX_ROUNDS):
            result = await self.sent(lambda session, again=again: ask(session, **again))
            if not isinstance(result, types.InputRequiredResult):
                return result
            requests = self._worded(result)
            if self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                state = f"{_UPSTREAM_STATE}{result.request_state or ''}"
                return types.InputRequiredResult(input_requests=requests or None, request_state=state)
            again = {"request_state": result.request_state, "input_responses": await self._answers(result)}
        raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server asks again and again")

    def _worded(self, result: types.InputRequiredResult) -> dict[str, Any]:
        asked = result.input_requests or {}
        if len(asked) > _MAX_QUESTIONS or len(result.request_state or "") > _MAX_STATE_CHARACTERS:
            raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server asks too much at once")
        try:
            return {key: worded(self._name, one.method, _plain(one)) for key, one in asked.items()}
        except Declined as why:
            raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server asks what is declined: {why}") from None

    async def _answers(self, result: types.InputRequiredResult) -> dict[str, Any]:
        questions = self._passed.questions
        try:
            return {
                key: await questions.ask(self._name, one.method, _plain(one), self._origin)
                for key, one in (result.input_requests or {}).items()
            }
        except Declined as why:
            raise MCPError(types.INTERNAL_ERROR, f"{self._name}: the server asks what is declined: {why}") from None


def _plain(request: Any) -> dict[str, Any]:
    params = request.params
    return {} if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _resource(passed: Passed, ctx: Any, uri: str) -> tuple[Any, str]:
    found = await passed.resource(uri)
    if found is None:
        raise _about(MCPError(RESOURCE_NOT_FOUND, f"no server has the resource {uri[:200]!r}"), ctx, uri)
    return found


def _about(error: MCPError, ctx: Any, uri: str) -> MCPError:
    """Return what is said of a resource that is not there in the words of the client's revision, with its URI."""
    if error.code not in (RESOURCE_NOT_FOUND, types.INVALID_PARAMS):
        return error
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return MCPError(types.INVALID_PARAMS if is_modern else error.code, error.error.message, {"uri": uri[:2000]})


async def _watch(passed: Passed, upstream: Any, uri: str, public: str, watcher: Any) -> None:
    try:
        await passed.watching.watch(upstream, uri, public, watcher)
    except NotWatched as why:
        raise MCPError(types.INVALID_PARAMS, f"{upstream.config.name}: {why}") from None


def _relink(passed: Passed, server: str, content: Any) -> None:
    if isinstance(content, types.ResourceLink):
        content.uri = passed.linked(server, content.uri)
    elif isinstance(content, types.EmbeddedResource):
        content.resource.uri = passed.linked(server, content.resource.uri)
