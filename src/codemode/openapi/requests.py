"""Write a request of an operation: path, query, headers, cookies and body, by the styles of OpenAPI."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ..data.content import Content
from ..data.json_values import well_formed
from ..data.narrowing import is_array, is_object, mapping_or_empty, string_or_empty
from ..errors import CodeModeToolError
from ..host import steps
from .operations import Body, Operation, Parameter, body_kind

_RESERVED = ":/?#[]@!$&'()*+,;="
_ESCAPES = 4
_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]|\A[ \t]|[ \t]\Z")
_MAX_LEVELS = 20

Part = tuple[str, tuple[str | None, bytes, str | None]]


class PlainRequest(NamedTuple):
    """A request without its server. ``target`` is an encoded path with its query."""

    method: str
    target: str
    headers: dict[str, str]
    cookies: list[str]
    content: bytes | None = None
    files: list[Part] | None = None


def write_request(operation: Operation, value: Mapping[str, Any]) -> PlainRequest:
    """Return the request for a validated input. Raises `CodeModeToolError` for a value that cannot be sent."""
    given = [(one, value[one.key]) for one in operation.form.parameters if value.get(one.key) is not None]
    path, _, fixed = operation.path.partition("#")[0].partition("?")
    pairs = [fixed] if fixed else []
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for parameter, one in given:
        if parameter.location == "path":
            path = path.replace("{" + parameter.name + "}", _path_text(parameter, one))
        elif parameter.location == "query":
            pairs += _query_pairs(parameter, one)
        elif parameter.location == "header":
            text = headers[parameter.name] = _joined(parameter, one, plain_text)
            if _UNSENDABLE.search(text):
                raise CodeModeToolError(f"{parameter.key}: a header cannot carry such text (line breaks or the like)")
        else:
            cookies += _query_pairs(parameter, one)
    _require_own_path(path, operation)
    target = "?".join(filter(None, (path, "&".join(pairs))))
    plain = PlainRequest(operation.method, target, headers, cookies)
    if operation.form.body is None:
        return plain
    return _with_body(plain, operation.form.body, value, {one.key for one in operation.form.parameters})


def plain_text(value: Any) -> str:
    """Return a value as the text that parameters have."""
    if isinstance(value, str):
        return value
    if isinstance(value, Content):
        raise CodeModeToolError("an image, audio or a file can only be sent in the body of a request")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _encoded(text: str, kept: str = "") -> str:
    return quote(well_formed(text), safe=f"-._~{kept}")


def _scalar(value: Any) -> str:
    return _encoded(plain_text(value))


# --- parameters ---


def _path_text(parameter: Parameter, value: Any) -> str:
    text = _joined(parameter, value, _scalar)
    if not text:
        raise CodeModeToolError(f"{parameter.key}: a part of the path cannot be empty")
    return text


def _require_own_path(path: str, operation: Operation) -> None:
    """Refuse values that servers may read as another path, however they decode it."""
    if "{" in path:
        missing = re.findall(r"\{([^{}]*)\}", path)
        raise CodeModeToolError(f"{operation.name} needs a value for {', '.join(missing)}: it is a part of the path")
    for _ in range(_ESCAPES):
        if any(part.split(";")[0] in (".", "..") for part in re.split(r"[/\\]", path)) or "\x00" in path:
            raise CodeModeToolError(f"{operation.name}: a value with '.' or '..' as a part of the path is not sent")
        decoded = unquote(path)
        if decoded == path:
            return
        path = decoded
    raise CodeModeToolError(f"{operation.name}: a value of the path is escaped too often to be sent")


def _joined(parameter: Parameter, value: Any, write: Any) -> str:
    """Write a value in the styles simple, label and matrix."""
    if parameter.is_json:
        return write(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    before, between = {"label": (".", "."), "matrix": (";", ";")}.get(parameter.style, ("", ","))
    between = between if parameter.explode else ","
    name, is_named = _encoded(parameter.name), parameter.style == "matrix"
    if is_object(value):
        sign = "=" if parameter.explode else ","
        items = [f"{write(key)}{sign}{write(one)}" for key, one in value.items() if one is not None]
    else:
        items = [write(one) for one in (value if is_array(value) else [value])]
        if is_named and parameter.explode:
            items = [f"{name}={item}" for item in items]
    text = between.join(items)
    return before + (f"{name}={text}" if is_named and not parameter.explode else text)


def _query_pairs(parameter: Parameter, value: Any) -> list[str]:
    kept = _RESERVED.replace("&", "").replace("#", "") if parameter.allow_reserved else ""
    if parameter.is_json:
        return [f"{_encoded(parameter.name)}={_encoded(json.dumps(value, separators=(',', ':')), kept)}"]
    return styled_pairs(parameter.name, value, parameter.style, explode=parameter.explode, kept=kept)


def styled_pairs(name: str, value: Any, style: str, *, explode: bool, kept: str = "") -> list[str]:
    """Return ``name=value`` for a query, a cookie or a form, encoded."""
    steps.take()
    members = [(key, one) for key, one in value.items() if one is not None] if is_object(value) else []
    if style == "deepObject":
        members = [*_leaves(name, value, 0)]
    elif is_array(value) and explode:
        members = [(name, one) for one in value]
    elif not (is_object(value) and explode):
        parts = [part for member in members for part in member] if is_object(value) else value
        texts = [_encoded(plain_text(one), kept) for one in (parts if is_array(parts) else [parts])]
        return [f"{_encoded(name)}={_DELIMITERS.get(style, ',').join(texts)}"]
    return [f"{_encoded(key)}={_encoded(plain_text(one), kept)}" for key, one in members]


def _leaves(name: str, value: Any, level: int) -> Iterator[tuple[str, Any]]:
    steps.take()
    if level > _MAX_LEVELS:
        raise CodeModeToolError(f"{name[:100]} nests too deeply to be sent")
    if not is_object(value) and not is_array(value):
        yield name, value
        return
    for key, one in value.items() if is_object(value) else enumerate(value):
        if one is not None or is_array(value):
            yield from _leaves(f"{name}[{key}]", one, level + 1)


# --- bodies ---


def _with_body(plain: PlainRequest, body: Body, value: Mapping[str, Any], parameters: set[str]) -> PlainRequest:
    names = {key: name for name, key in body.keys.items()}
    own = {names[key]: one for key, one in value.items() if key in names}
    if body.parts is not None and body.parts.extra is not False:
        own |= {key: one for key, one in value.items() if key not in names and key not in parameters}
    if not own and (body.parts is None or not body.required):
        return plain
    sent: Any = own[""] if body.parts is None else own
    if body.kind == "multipart":
        return plain._replace(files=_multipart(body, mapping_or_empty(sent)))
    content, media_type = _content(body, sent)
    return plain._replace(content=content, headers={**plain.headers, "content-type": media_type})


def _content(body: Body, value: Any) -> tuple[bytes, str]:
    if isinstance(value, Content):
        is_named = body.media_type != "application/octet-stream"
        return value.data, body.media_type if is_named else value.mime_type
    if body.kind == "json":
        return _json(value), body.media_type
    if body.kind == "form":
        given = [(name, one) for name, one in mapping_or_empty(value).items() if one is not None]
        pairs = [pair for name, one in given for pair in _form_pairs(body, name, one)]
        return "&".join(pairs).encode(), body.media_type
    return well_formed(plain_text(value)).encode(), body.media_type


def _json(value: Any) -> bytes:
    try:
        return well_formed(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))).encode()
    except (TypeError, ValueError):
        raise CodeModeToolError("the body holds an image, audio or a file, and the API takes JSON") from None


def _form_pairs(body: Body, name: str, value: Any) -> list[str]:
    encoding = mapping_or_empty(body.encoding.get(name))
    if "json" in string_or_empty(encoding.get("contentType")):
        return [f"{_encoded(name)}={_encoded(value if isinstance(value, str) else _json(value).decode())}"]
    style = string_or_empty(encoding.get("style")) or "form"
    explode = encoding.get("explode", style in ("form", "deepObject")) is True
    return styled_pairs(name, value, style, explode=explode)


def _multipart(body: Body, value: Mapping[str, Any]) -> list[Part]:
    parts: list[Part] = []
    for name, one in value.items():
        encoding = mapping_or_empty(body.encoding.get(name))
        media_type = string_or_empty(encoding.get("contentType")).split(",")[0].strip()
        items = one if is_array(one) else [one]
        parts += [(name, _part(item, media_type)) for item in items if item is not None]
    return parts


def _part(value: Any, media_type: str) -> tuple[str | None, bytes, str | None]:
    is_sound = bool(re.fullmatch(r"[\w.+-]{1,80}/[\w.+-]{1,80}", media_type))
    if isinstance(value, Content):
        name = re.sub(r"[\x00-\x1f\x7f\"\\/]", "_", value.name or "file")
        return name, value.data, media_type if is_sound else value.mime_type
    if is_object(value) or is_array(value) or (is_sound and body_kind(media_type) == "json"):
        return None, _json(value), media_type if is_sound else "application/json"
    return None, well_formed(plain_text(value)).encode(), media_type if is_sound else None
