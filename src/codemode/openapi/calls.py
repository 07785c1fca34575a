"""Calls of operations: the request, its redirects and retries, and the API's response."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, quote, unquote

from ..data.content import MediaContent
from ..data.json_shape import estimate_json_length, run_off_loop_if_large
from ..data.json_values import decode_json, replace_lone_surrogates
from ..data.narrowing import is_array, is_object, list_or_empty, mapping_or_empty, string_or_empty
from ..errors import CALL_TIMEOUT, CodeModeHttpError, CodeModeToolError
from ..host.threads import run_in_thread_if_large_or_slow
from ..trace.visible_text import clip_text, clip_to_visible_line
from .operations import Operation, OperationParameter, RequestBody, classify_media_type, get_types, list_alternatives
from .spec import NoUsableResponseError, get_origin, send_following_same_origin_redirects

if TYPE_CHECKING:
    import httpx


_RESERVED = ":/?#[]@!$&'()*+,;="
_MAX_UNQUOTE_ROUNDS = 4
_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_UNSENDABLE_HEADER_TEXT = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]|\A[ \t]|[ \t]\Z")
_MAX_NESTING = 20

MultipartPart = tuple[str, tuple[str | None, bytes, str | None]]


class RelativeRequest(NamedTuple):
    """A request without its server. ``target`` is an encoded path with its query."""

    method: str
    target: str
    headers: dict[str, str]
    cookies: list[str]
    content: bytes | None = None
    files: list[MultipartPart] | None = None


def create_relative_request(operation: Operation, value: Mapping[str, Any]) -> RelativeRequest:
    """Return the request for a validated input. Raises `CodeModeToolError` for a value that cannot be sent."""
    parameter_values = [
        (parameter_value, value[parameter_value.key])
        for parameter_value in operation.request_definition.parameters
        if value.get(parameter_value.key) is not None
    ]
    path, _, fixed_query = operation.path.partition("#")[0].partition("?")
    pairs = [fixed_query] if fixed_query else []
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for parameter, parameter_value in parameter_values:
        if parameter.location == "path":
            path = path.replace("{" + parameter.name + "}", _encode_path_parameter(parameter, parameter_value))
        elif parameter.location == "query":
            pairs += _encode_query_or_cookie_pairs(parameter, parameter_value)
        elif parameter.location == "header":
            text = headers[parameter.name] = _encode_path_or_header_style(parameter, parameter_value, to_parameter_text)
            if _UNSENDABLE_HEADER_TEXT.search(text):
                raise CodeModeToolError(f"{parameter.key}: a header cannot carry such text (line breaks or the like)")
        else:
            cookies += _encode_query_or_cookie_pairs(parameter, parameter_value)
    _require_safe_path(path, operation)
    target = "?".join(filter(None, (path, "&".join(pairs))))
    request = RelativeRequest(operation.method, target, headers, cookies)
    if operation.request_definition.body is None:
        return request
    return _add_request_body(
        request,
        operation.request_definition.body,
        value,
        {parameter_value.key for parameter_value in operation.request_definition.parameters},
    )


def to_parameter_text(value: Any) -> str:
    """Return a value as the text that parameters have."""
    if isinstance(value, str):
        return value
    if isinstance(value, MediaContent):
        raise CodeModeToolError("an image, audio or a file can only be sent in the body of a request")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _quote_text(text: str, safe: str = "") -> str:
    return quote(replace_lone_surrogates(text), safe=f"-._~{safe}")


def _quote_value(value: Any) -> str:
    return _quote_text(to_parameter_text(value))


# --- parameters ---


def _encode_path_parameter(parameter: OperationParameter, value: Any) -> str:
    text = _encode_path_or_header_style(parameter, value, _quote_value)
    if not text:
        raise CodeModeToolError(f"{parameter.key}: a part of the path cannot be empty")
    return text


def _require_safe_path(path: str, operation: Operation) -> None:
    """Refuse values that servers may read as another path, however they decode it."""
    if "{" in path:
        missing = re.findall(r"\{([^{}]*)\}", path)
        raise CodeModeToolError(f"{operation.name} needs a value for {', '.join(missing)}: it is a part of the path")
    for _ in range(_MAX_UNQUOTE_ROUNDS):
        if any(part.split(";")[0] in (".", "..") for part in re.split(r"[/\\]", path)) or "\x00" in path:
            raise CodeModeToolError(f"{operation.name}: a value with '.' or '..' as a part of the path is not sent")
        decoded = unquote(path)
        if decoded == path:
            return
        path = decoded
    raise CodeModeToolError(f"{operation.name}: a value of the path is escaped too often to be sent")


def _encode_path_or_header_style(parameter: OperationParameter, value: Any, write_item: Any) -> str:
    """Write a value in the styles simple, label and matrix."""
    if parameter.is_json:
        return write_item(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    prefix, separator = {"label": (".", "."), "matrix": (";", ";")}.get(parameter.style, ("", ","))
    separator = separator if parameter.explode else ","
    name, is_named = _quote_text(parameter.name), parameter.style == "matrix"
    if is_object(value):
        sign = "=" if parameter.explode else ","
        items = [f"{write_item(key)}{sign}{write_item(member)}" for key, member in value.items() if member is not None]
    else:
        items = [write_item(member) for member in (value if is_array(value) else [value])]
        if is_named and parameter.explode:
            items = [f"{name}={item}" for item in items]
    text = separator.join(items)
    return prefix + (f"{name}={text}" if is_named and not parameter.explode else text)


def _encode_query_or_cookie_pairs(parameter: OperationParameter, value: Any) -> list[str]:
    safe = _RESERVED.replace("&", "").replace("#", "") if parameter.allow_reserved else ""
    if parameter.is_json:
        return [f"{_quote_text(parameter.name)}={_quote_text(json.dumps(value, separators=(',', ':')), safe)}"]
    return encode_name_value_pairs(parameter.name, value, parameter.style, explode=parameter.explode, safe=safe)


def encode_name_value_pairs(name: str, value: Any, style: str, *, explode: bool, safe: str = "") -> list[str]:
    """Return ``name=value`` for a query, a cookie or a form, encoded."""
    members = [(key, element) for key, element in value.items() if element is not None] if is_object(value) else []
    if style == "deepObject":
        members = [*_iterate_deep_object_members(name, value, 0)]
    elif is_array(value) and explode:
        members = [(name, element) for element in value]
    elif not (is_object(value) and explode):
        parts = [part for member in members for part in member] if is_object(value) else value
        texts = [_quote_text(to_parameter_text(element), safe) for element in (parts if is_array(parts) else [parts])]
        return [f"{_quote_text(name)}={_DELIMITERS.get(style, ',').join(texts)}"]
    return [f"{_quote_text(key)}={_quote_text(to_parameter_text(element), safe)}" for key, element in members]


def _iterate_deep_object_members(name: str, value: Any, level: int) -> Iterator[tuple[str, Any]]:
    if level > _MAX_NESTING:
        raise CodeModeToolError(f"{name[:100]} nests too deeply to be sent")
    if not is_object(value) and not is_array(value):
        yield name, value
        return
    for key, member in value.items() if is_object(value) else enumerate(value):
        if member is not None or is_array(value):
            yield from _iterate_deep_object_members(f"{name}[{key}]", member, level + 1)


# --- bodies ---


def _add_request_body(
    request: RelativeRequest, body: RequestBody, value: Mapping[str, Any], parameters: set[str]
) -> RelativeRequest:
    names = {key: name for name, key in body.keys.items()}
    body_values = {names[key]: member for key, member in value.items() if key in names}
    if body.parts is not None and body.parts.extra is not False:
        body_values |= {key: member for key, member in value.items() if key not in names and key not in parameters}
    if not body_values and (body.parts is None or not body.required):
        return request
    body_value: Any = body_values[""] if body.parts is None else body_values
    if body.kind == "multipart":
        return request._replace(files=_create_multipart_parts(body, mapping_or_empty(body_value)))
    content, media_type = _encode_body(body, body_value)
    return request._replace(content=content, headers={**request.headers, "content-type": media_type})


def _encode_body(body: RequestBody, value: Any) -> tuple[bytes, str]:
    if isinstance(value, MediaContent):
        is_named = body.media_type != "application/octet-stream"
        return value.data, body.media_type if is_named else value.mime_type
    if body.kind == "json":
        return _encode_json_body(value), body.media_type
    if body.kind == "form":
        members = [(name, member) for name, member in mapping_or_empty(value).items() if member is not None]
        pairs = [pair for name, member in members for pair in _encode_form_pairs(body, name, member)]
        return "&".join(pairs).encode(), body.media_type
    return replace_lone_surrogates(to_parameter_text(value)).encode(), body.media_type


def _encode_json_body(value: Any) -> bytes:
    try:
        return replace_lone_surrogates(
            json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        ).encode()
    except (TypeError, ValueError):
        raise CodeModeToolError("the body holds an image, audio or a file, and the API takes JSON") from None


def _encode_form_pairs(body: RequestBody, name: str, value: Any) -> list[str]:
    encoding = mapping_or_empty(body.encoding.get(name))
    if "json" in string_or_empty(encoding.get("contentType")):
        return [
            f"{_quote_text(name)}={_quote_text(value if isinstance(value, str) else _encode_json_body(value).decode())}"
        ]
    style = string_or_empty(encoding.get("style")) or "form"
    explode = encoding.get("explode", style in ("form", "deepObject")) is True
    return encode_name_value_pairs(name, value, style, explode=explode)


def _create_multipart_parts(body: RequestBody, value: Mapping[str, Any]) -> list[MultipartPart]:
    parts: list[MultipartPart] = []
    for name, member in value.items():
        encoding = mapping_or_empty(body.encoding.get(name))
        media_type = string_or_empty(encoding.get("contentType")).split(",")[0].strip()
        items = member if is_array(member) else [member]
        parts += [(name, _create_multipart_part(item, media_type)) for item in items if item is not None]
    return parts


def _create_multipart_part(value: Any, media_type: str) -> tuple[str | None, bytes, str | None]:
    is_valid_media_type = bool(re.fullmatch(r"[\w.+-]{1,80}/[\w.+-]{1,80}", media_type))
    if isinstance(value, MediaContent):
        name = re.sub(r"[\x00-\x1f\x7f\"\\/]", "_", value.name or "file")
        return name, value.data, media_type if is_valid_media_type else value.mime_type
    if is_object(value) or is_array(value) or (is_valid_media_type and classify_media_type(media_type) == "json"):
        return None, _encode_json_body(value), media_type if is_valid_media_type else "application/json"
    return None, replace_lone_surrogates(to_parameter_text(value)).encode(), media_type if is_valid_media_type else None


_MAX_ERROR_CHARACTERS = 4_000
_MAX_ERROR_MEMBERS = 50
_MAX_MESSAGE_CHARACTERS = 500
_MAX_FIELD_ERRORS = 10
_MAX_FIELD_NAME_CHARACTERS = 100
_SUMMARY_KEYS = ("message", "detail", "error_description", "title", "error", "errors", "reason")
_ERROR_TEXT_KEYS = ("message", "msg", "detail", "defaultMessage", "title", "code")
_ERROR_FIELD_KEYS = ("loc", "field", "path", "source")
_MAX_LINKS = 10
_MAX_LINK_CHARACTERS = 20_000
_MIN_SECRET_LENGTH = 8
_REDACTED = "[secret]"
_SECRET_NAME = re.compile(r"auth|token|key|secret|cookie|password|session|signature|credential", re.IGNORECASE)
_LINK = re.compile(r"<([^<>]{1,4000})>\s*((?:;[^,<]{0,200}){1,10})")
_RELATION = re.compile(r";\s*rel\s*=\s*\"?(next|prev|previous|first|last)\"?", re.IGNORECASE)
_FILE_NAME = re.compile(r"filename\s*=\s*\"?([^\";]{1,200})", re.IGNORECASE)


class OperationResponse(NamedTuple):
    """The answer to a call of an operation with an input."""

    operation: Operation
    value: Mapping[str, Any]
    request: RelativeRequest
    response: httpx.Response
    body: bytes

    def to_result(self) -> Any:
        """Return what a program gets."""
        result = self._parse_body()
        if not self.operation.has_pagination_links or not is_array(result):
            return result
        links: dict[str, Any] = {}
        for url, parameters in _LINK.findall(self.response.headers.get("link", "")[:_MAX_LINK_CHARACTERS])[:_MAX_LINKS]:
            if relation := _RELATION.search(parameters):
                links.setdefault(relation[1].lower().replace("previous", "prev"), self._create_pagination_link(url))
        return {"items": result, "links": links}

    def to_error(self, retry_ms: int | None) -> CodeModeHttpError:
        """Return the error of an answer that is no result."""
        parsed, status = self._parse_body(), self.response.status_code
        text = _find_error_message(parsed)
        details: dict[str, Any] = {"status": status}
        if parsed is not None:
            details["body"] = parsed.description if isinstance(parsed, MediaContent) else _shorten_error_body(parsed)
        if retry_ms is not None:
            details["retryAfterMs"] = retry_ms
        summary = f"{self.operation.method} {self.operation.path} failed: {status}"
        phrase = clip_to_visible_line(self._mask_secrets(self.response.reason_phrase), 60)
        return CodeModeHttpError(f"{summary} {phrase}".strip() + (f": {text}" if text else ""), details=details)

    def _parse_body(self) -> Any:
        if not self.body:
            return None
        media_type = self.response.headers.get("content-type", "")
        kind = classify_media_type(media_type) if media_type else "binary" if b"\0" in self.body else "json"
        if kind in ("binary", "multipart"):
            return self._to_media_content(media_type)
        try:
            text = self.body.decode(self.response.charset_encoding or "utf-8", "replace")
        except (LookupError, ValueError):  # the charset is unknown
            text = self.body.decode("utf-8", "replace")
        text = self._mask_secrets(text)
        try:
            return decode_json(text) if kind == "json" else text
        except ValueError:
            return text

    def _to_media_content(self, media_type: str) -> MediaContent:
        name = _FILE_NAME.search(self.response.headers.get("content-disposition", ""))
        file_name = clip_to_visible_line(unquote(name[1]).replace("\\", "/").rsplit("/", 1)[-1], 200) if name else None
        try:
            return MediaContent(self.body, media_type.partition(";")[0].strip(), name=file_name)
        except ValueError:
            return MediaContent(self.body, "application/octet-stream", name=file_name)

    def _create_pagination_link(self, url: str) -> dict[str, Any]:
        target, request_url = self.response.url.join(url), self.response.request.url
        link: dict[str, Any] = {"url": self._mask_secrets(str(target))}
        if get_origin(target) == get_origin(request_url) and target.path == request_url.path:
            query = parse_qs(target.query.decode("ascii", "replace"))
            query_parameters = [
                parameter
                for parameter in self.operation.request_definition.parameters
                if parameter.location == "query" and parameter.name in query
            ]
            link["input"] = {
                **self.value,
                **{
                    parameter.key: self._parse_query_value(parameter, query[parameter.name])
                    for parameter in query_parameters
                },
            }
        return link

    def _parse_query_value(self, parameter: OperationParameter, texts: list[str]) -> Any:
        """Return the value of a query as the type of its parameter. ``texts`` are those of its name, at least one."""
        spec = self.operation.spec
        alternatives = list_alternatives(parameter.schema, spec)
        types = get_types(alternatives)
        if parameter.is_json or "array" not in types or (len(texts) == 1 and types - {"array", "null"}):
            return _parse_query_text(texts[-1], types, is_json=parameter.is_json)
        if not parameter.explode:
            texts = texts[-1].split(unquote(_DELIMITERS.get(parameter.style, ",")))
        lists = [alternative for alternative in alternatives if "array" in get_types([alternative])]
        item_types = get_types(item for schema in lists for item in list_alternatives(schema.get("items"), spec))
        return [_parse_query_text(text, item_types) for text in texts]

    def _mask_secrets(self, text: str) -> str:
        """Return a text without what the client has added to the request: no program may read it."""
        request, program_headers = self.response.request, {name.lower() for name in self.request.headers}
        query = dict(parse_qsl(self.request.target.partition("?")[2]))
        secrets = {request.url.password, request.url.username}
        for name, value in request.headers.items():
            if _SECRET_NAME.search(name) and name not in program_headers:
                secrets |= {value, *value.split(" "), *re.split(r"[;=]\s*", value)}
        for name, value in parse_qsl(request.url.query.decode("ascii", "replace")):
            if _SECRET_NAME.search(name) and name not in query:
                secrets.add(value)
        for secret in sorted(
            (secret_text for secret_text in secrets if len(secret_text) >= _MIN_SECRET_LENGTH), key=len, reverse=True
        ):
            text = text.replace(secret, _REDACTED).replace(secret.replace("/", "\\/"), _REDACTED)
        return text


def _parse_query_text(text: str, types: set[str], *, is_json: bool = False) -> Any:
    """Return the number or truth value of a text where its types allow no string, else the text."""
    is_json = is_json or ("string" not in types and not types.isdisjoint(("integer", "number", "boolean")))
    try:
        return decode_json(text) if is_json else text
    except ValueError:
        return text


def _find_error_message(parsed: Any) -> str:
    """Return the error text of an API's response: its usual fields, else the beginning of its JSON."""
    if isinstance(parsed, str):
        return clip_to_visible_line(parsed, _MAX_MESSAGE_CHARACTERS)
    body = mapping_or_empty(next(iter(list_or_empty(parsed)), parsed))
    summary = next(filter(None, (_get_error_text(body.get(key)) for key in _SUMMARY_KEYS)), "")
    lists = [body.get("errors"), *filter(is_array, (body.get("message"), body.get("detail")))]
    errors = [error for members in lists for error in _iterate_field_errors(members)]
    if not summary and not errors and all(map(is_array, body.values())):  # Django REST: texts by field
        errors = [*_iterate_field_errors(body)]
    texts = [f"{field}: {text}" if field else text for field, text in errors if text != summary]
    message = ": ".join(filter(None, (summary.rstrip(" .:") if texts else summary, "; ".join(texts))))
    if not message and parsed and (is_object(parsed) or is_array(parsed)):
        message = to_parameter_text(_shorten_error_body(parsed))
    return clip_to_visible_line(message, _MAX_MESSAGE_CHARACTERS)


def _get_error_text(value: Any) -> str:
    """Return a text, or the message of an object, shortened; empty for anything else."""
    text = mapping_or_empty(value).get("message") if is_object(value) else value
    return clip_to_visible_line(text, _MAX_MESSAGE_CHARACTERS) if isinstance(text, str) and text.strip() else ""


def _iterate_field_errors(errors: Any) -> Iterator[tuple[str, str]]:
    """Yield field and text of the first errors of a list, or of an object of texts by field. The field may be empty."""
    fields = {"": errors} if is_array(errors) else mapping_or_empty(errors)
    for field, messages in islice(fields.items(), _MAX_FIELD_ERRORS):
        for error in (messages if is_array(messages) else [messages])[:_MAX_FIELD_ERRORS]:
            name, text = field, _get_error_text(error)
            if is_object(error):
                text = next(filter(None, (_get_error_text(error.get(key)) for key in _ERROR_TEXT_KEYS)), "")
                name = next(filter(None, (_get_field_name(error.get(key)) for key in _ERROR_FIELD_KEYS)), field)
            if text:
                yield clip_to_visible_line(name, _MAX_FIELD_NAME_CHARACTERS), text


def _get_field_name(value: Any) -> str:
    """Return the name of the field that an error is about: a text, a list of path segments, or a JSON:API source."""
    if is_object(value):
        value = value.get("pointer")
    segments = value[:_MAX_NESTING] if is_array(value) else [value]
    return ".".join(str(segment) for segment in segments if isinstance(segment, str | int))


def _shorten_error_body(parsed: Any) -> Any:
    """Return the body of an error: whole where it is small, else its small members, or the beginning of its text."""
    if not isinstance(parsed, str) and _is_small_value(parsed):
        return parsed
    shortened: dict[str, Any] = {}
    for key, member in islice(mapping_or_empty(parsed).items(), _MAX_ERROR_MEMBERS):
        short_member = clip_text(member, _MAX_MESSAGE_CHARACTERS) if isinstance(member, str) else member
        if _is_small_value({**shortened, key: short_member}):
            shortened[key] = short_member
    return shortened or clip_text(to_parameter_text(parsed), _MAX_ERROR_CHARACTERS)


def _is_small_value(value: Any) -> bool:
    return estimate_json_length(value, _MAX_ERROR_CHARACTERS) < _MAX_ERROR_CHARACTERS


_RETRIED_STATUSES = frozenset({429, 503})
_MAX_ATTEMPTS = 4
_ACCEPT_HEADER = "application/json, text/*;q=0.8, */*;q=0.5"


class OperationCaller:
    """Sends requests to one origin, to which alone the client's credentials go."""

    def __init__(self, client: httpx.AsyncClient, base_url: str, max_response_bytes: int, max_wait_ms: int) -> None:
        self._client = client
        self._base_url = base_url.rstrip("/")
        self._max_bytes = max_response_bytes
        self._max_wait_ms = max_wait_ms

    async def call(self, operation: Operation, value: Mapping[str, Any]) -> Any:
        """Return the result of an operation.

        Raises `CodeModeHttpError` for an error of the API, `CodeModeToolError` where there was no answer.
        """
        request = await run_off_loop_if_large(value, partial(create_relative_request, operation, value))
        waited_ms = 0
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            response, body = await self._send_request(operation, request)
            operation_response = OperationResponse(operation, value, request, response, body)
            if response.is_success:
                return await run_in_thread_if_large_or_slow(len(body), operation_response.to_result)
            retry_ms = _parse_retry_after_ms(response)
            may_repeat = (
                operation.is_idempotent and response.status_code in _RETRIED_STATUSES and attempt < _MAX_ATTEMPTS
            )
            if not may_repeat or retry_ms is None or waited_ms + retry_ms > self._max_wait_ms:
                raise await run_in_thread_if_large_or_slow(len(body), partial(operation_response.to_error, retry_ms))
            waited_ms += retry_ms
            await asyncio.sleep(retry_ms / 1000)
        raise AssertionError

    async def _send_request(self, operation: Operation, plain_request: RelativeRequest) -> tuple[httpx.Response, bytes]:
        statuses: list[int] = []

        def build_request(url: str, status: int | None) -> httpx.Request:
            nonlocal plain_request
            if status is not None:
                statuses.append(status)
                plain_request = _to_redirected_request(plain_request, status)
            return self._build_request(plain_request, url)

        try:
            response, body = await send_following_same_origin_redirects(
                self._client, self._base_url + plain_request.target, build_request, self._max_bytes
            )
        except NoUsableResponseError as error:
            if error.status is not None:
                _raise_if_carried_out(operation, [*statuses, error.status], str(error))
            summary = f"{operation.method} {operation.path}"
            if not error.is_lost:
                raise CodeModeToolError(f"{summary} failed: {error}") from None
            if operation.is_read_only:
                raise CodeModeToolError(f"{summary} got no answer ({error})") from None
            warning = "it may have happened all the same: look before you repeat it"
            raise CodeModeToolError(f"{summary} got no answer ({error}); {warning}", code=CALL_TIMEOUT) from None
        if not response.is_success:
            reason = f"the last answer has the status {response.status_code}"
            _raise_if_carried_out(operation, [*statuses, response.status_code], reason)
        return response, body

    def _build_request(self, plain_request: RelativeRequest, url: str) -> httpx.Request:
        import httpx

        headers = {"accept-encoding": "gzip", **plain_request.headers}
        if self._client.headers.get("accept") in (None, "*/*"):
            headers["accept"] = _ACCEPT_HEADER
        body: dict[str, Any] = (
            {"files": plain_request.files} if plain_request.files else {"content": plain_request.content}
        )
        request = self._client.build_request(plain_request.method, url, headers=headers, **body)
        if client_params := str(self._client.params):  # httpx would put them in place of the others
            request.url = httpx.URL(f"{url}{'&' if '?' in url else '?'}{client_params}")
        if plain_request.cookies:
            request.headers["cookie"] = "; ".join(filter(None, (request.headers.get("cookie"), *plain_request.cookies)))
        return request


def _raise_if_carried_out(operation: Operation, statuses: Sequence[int], reason: str) -> None:
    """Raise `CodeModeToolError` if the API has carried out a request whose result cannot be read.

    ``statuses`` are those of the responses, redirects included. No error for read-only operations.
    """
    status = next((status for status in statuses if _is_accepted(operation.method, status)), None)
    if status is None or operation.is_read_only:
        return
    # 301 and 302 are also sent for a moved resource or a missing sign-in.
    outcome, advice = (
        ("may have been carried out", "look before you repeat it")
        if status in (301, 302)
        else ("was carried out", "do not repeat it")
    )
    summary = f"{operation.method} {operation.path} {outcome} (the server answered {status}): {advice}"
    raise CodeModeToolError(f"{summary}; its result cannot be read: {reason}", code=CALL_TIMEOUT) from None


def _is_accepted(method: str, status: int) -> bool:
    return 200 <= status < 300 or _redirects_to_get(method, status)


def _redirects_to_get(method: str, status: int) -> bool:
    """Tell whether a redirect leads to a result; any other wants the same request at another URL (RFC 9110, 15.4)."""
    return status == 303 or (status in (301, 302) and method == "POST")


def _to_redirected_request(request: RelativeRequest, status: int) -> RelativeRequest:
    """Return the request that follows a redirect, as browsers make it."""
    if request.method in ("GET", "HEAD") or not _redirects_to_get(request.method, status):
        return request
    headers = {name: value for name, value in request.headers.items() if name != "content-type"}
    return request._replace(method="GET", content=None, files=None, headers=headers)


def _parse_retry_after_ms(response: httpx.Response) -> int | None:
    text = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", text):
        return int(float(text) * 1000)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0, min(int(seconds * 1000), 1 << 40))
