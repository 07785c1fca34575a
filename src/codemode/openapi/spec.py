"""Reads OpenAPI documents from a URL, file, text or object, JSON or YAML, within bounds."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin

from ..cached_property import cached_property
from ..data.json_shape import find_exceeded_limit, has_more_values_than
from ..data.json_values import decode_json, encode_json
from ..data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty, string_or_empty
from ..data.references import LocalReferenceResolver
from ..errors import CodeModeError, CodeModeFetchError
from ..fetch.client import iter_decoded_body
from ..host.threads import run_cpu_bound_in_dedicated_thread
from ..trace.visible_text import clip_text, clip_to_visible_line

if TYPE_CHECKING:
    import httpx


# Scalars as the core schema of YAML 1.2 reads them: `no` and dates are text, as OpenAPI asks for.
_NULLS = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_VALUE_BY_WORD = {**_NULLS, "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,5})?\Z")
_QUOTED_STYLES = ("'", '"', "|", ">")
_START_EVENTS = frozenset({"StreamStartEvent", "DocumentStartEvent"})
_END_OF_CONTAINER: Any = object()


def parse_yaml(text: str, *, max_values: int, max_depth: int) -> Any:
    """Return the value of a YAML text. The last of duplicate keys counts.

    Raises `ValueError` for invalid YAML, for more values than ``max_values`` once aliases are expanded, for nesting
    beyond ``max_depth``, and when PyYAML is missing.
    """
    try:
        import yaml
    except ModuleNotFoundError:
        raise ValueError("YAML needs PyYAML (pip install 'codemode-toolkit[openapi]')") from None
    parser: Any = yaml
    events = parser.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        value = _YamlReader(events, max_values, max_depth).read_value(0)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if has_more_values_than(value, max_values):
        raise _create_too_many_values_error(max_values)
    return None if value is _END_OF_CONTAINER else value


class _YamlReader:
    """Reads values, of which an alias is the same object as that of its anchor."""

    def __init__(self, events: Iterator[Any], max_values: int, max_depth: int) -> None:
        self._events = (event for event in events if type(event).__name__ not in _START_EVENTS)
        self._max_values = max_values
        self._max_depth = max_depth
        self._count = 0
        self._anchors: dict[str, Any] = {}

    def read_value(self, depth: int) -> Any:
        """Return the next value; `_END_OF_CONTAINER` where there is no more in this container."""
        event, kind = (event_found := next(self._events)), type(event_found).__name__
        self._count_values_or_raise(1)
        if kind.endswith("EndEvent"):
            return _END_OF_CONTAINER
        if kind == "AliasEvent":
            if event.anchor not in self._anchors:
                raise ValueError(f"the alias *{event.anchor[:100]} has no anchor before it")
            return self._anchors[event.anchor]
        if kind == "ScalarEvent":
            value = _read_scalar(event)
        elif depth >= self._max_depth:
            raise ValueError(f"it nests deeper than {self._max_depth} levels")
        else:
            members = iter(partial(self.read_value, depth + 1), _END_OF_CONTAINER)
            value = [*members] if kind == "SequenceStartEvent" else self._read_object(members)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _read_object(self, members: Iterator[Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key in members:
            value = next(members)
            if key != "<<":
                result[_to_key(key)] = value
                continue
            for merged in filter(is_object, value if is_array(value) else [value]):
                self._count_values_or_raise(len(merged))
                for name, member in merged.items():
                    result.setdefault(name, member)
        return result

    def _count_values_or_raise(self, values: int) -> None:
        self._count += values
        if self._count > self._max_values:
            raise _create_too_many_values_error(self._max_values)


def _create_too_many_values_error(max_values: int) -> ValueError:
    return ValueError(f"it holds more than {max_values} values")


def _to_key(key: Any) -> str:
    if isinstance(key, dict | list):
        raise ValueError("an object key is not text")  # noqa: TRY004 - the text is wrong, and no argument
    return key if isinstance(key, str) else json.dumps(key)


def _read_scalar(event: Any) -> Any:
    text: str = event.value
    if event.style in _QUOTED_STYLES or (event.tag or "").endswith(":str"):
        return text
    if text in _VALUE_BY_WORD or _INTEGER.match(text):
        return _VALUE_BY_WORD[text] if text in _VALUE_BY_WORD else int(text)
    number = float(text) if _FLOAT.match(text) else math.inf
    return number if math.isfinite(number) else text


DEFAULT_MAX_BYTES = 64 << 20
MAX_SPEC_VALUES = 10_000_000
MAX_SPEC_DEPTH = 200
MAX_REDIRECTS = 5
_TIMEOUT_SECONDS = 30
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REFERENCE = re.compile(r'"\$ref":("(?:[^"\\]|\\.)*")')
_MAX_DIGESTED_PARTS = 300
_URL = re.compile(r"https?://", re.IGNORECASE)
_SWAGGER_HINT = "convert it to OpenAPI 3 first, for example with https://converter.swagger.io"


class SpecError(ValueError):
    """A document that cannot be used as an OpenAPI document. The message says what it is, why, and what to do."""


@dataclass(frozen=True, eq=False)
class Spec:
    """An OpenAPI 3.0 or 3.1 document as plain JSON. ``source`` names it in messages."""

    document: Mapping[str, Any]
    source: str

    @property
    def title(self) -> str:
        """The title of the API; empty if the document has no title."""
        return clip_to_visible_line(string_or_empty(mapping_or_empty(self.document.get("info")).get("title")), 200)

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that the document names, with the defaults of their variables. None is used unless you say so."""
        base = self.source if _URL.match(self.source) else ""
        urls = map(_resolve_server_url, list_or_empty(self.document.get("servers")))
        return tuple(urljoin(base, url) for url in urls if url)

    @cached_property
    def reference_resolver(self) -> LocalReferenceResolver:
        """Resolves references within the document. References to other documents are not fetched, and find nothing."""
        return LocalReferenceResolver(self.document)

    def follow_references(self, value: Any) -> Mapping[str, Any]:
        """Return the object behind a chain of references; an empty one if it leads nowhere."""
        return mapping_or_empty(self.reference_resolver.follow_reference_chain(value))

    def compute_digest(self, value: Any) -> str:
        """Return a digest of a part of the document with all parts that it refers to."""
        value_digest, pending_references = _compute_digest_and_references(value)
        digest_by_reference: dict[str, str] = {}
        while pending_references:
            if len(digest_by_reference) > _MAX_DIGESTED_PARTS:  # the whole document stands for so many
                digest_by_reference = {"#": self._get_or_compute_digest("#")[0]}
                break
            reference = pending_references.pop()
            digest_by_reference[reference], further = self._get_or_compute_digest(reference)
            pending_references |= further - digest_by_reference.keys()
        return hashlib.sha256(repr([value_digest, sorted(digest_by_reference.items())]).encode()).hexdigest()

    def _get_or_compute_digest(self, reference: str) -> tuple[str, set[str]]:
        if reference not in self._digests_by_reference:
            self._digests_by_reference[reference] = _compute_digest_and_references(
                self.reference_resolver.look_up_reference(reference)
            )
        return self._digests_by_reference[reference]

    @cached_property
    def _digests_by_reference(self) -> dict[str, tuple[str, set[str]]]:
        return {}


def _compute_digest_and_references(value: Any) -> tuple[str, set[str]]:
    try:
        text = encode_json(value, what="a part of the document")
    except (CodeModeError, ValueError):  # a given object holds what is no JSON
        text = ""
    references = json.loads(f"[{','.join(_REFERENCE.findall(text))}]")
    return hashlib.sha256(text.encode()).hexdigest(), set(references)


async def load_spec(
    source: Mapping[str, Any] | str | os.PathLike[str],
    *,
    client: httpx.AsyncClient | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Spec:
    """Read an OpenAPI document. ``source`` is its URL, a path, its text, or the parsed object.

    ``client`` fetches a URL; without one a plain client without credentials does. Redirects are followed within the
    origin of the URL. Nothing else is fetched: a ``$ref`` to another document is left out.
    Raises `SpecError` for Swagger 2, for what is not an OpenAPI document, and for more than ``max_bytes``.
    """
    if is_mapping(source):
        return await run_cpu_bound_in_dedicated_thread(lambda: create_spec(source, "the given object"))
    text = source if isinstance(source, str) else ""
    if _URL.match(text):
        name, raw = _remove_query_and_credentials(text), await _download_document(text, client, max_bytes)
    elif "\n" in text or text.lstrip()[:1] == "{":
        name, raw = "the given text", text.encode("utf-8", "replace")
    else:
        path = Path(cast("os.PathLike[str]", source))
        name, raw = path.name, await run_cpu_bound_in_dedicated_thread(lambda: _read_file(path, max_bytes))
    if len(raw) > max_bytes:
        raise SpecError(f"{name} is larger than {max_bytes} bytes; raise max_bytes if you trust it")
    return await run_cpu_bound_in_dedicated_thread(lambda: parse_spec(raw, name))


def parse_spec(raw: bytes, name: str) -> Spec:
    """Parse the text of a document, JSON or YAML. Raises `SpecError`."""
    try:
        document = _parse_json_or_yaml(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SpecError(f"{name} is not UTF-8 text, so it is not an OpenAPI document") from None
    except ValueError as error:
        raise SpecError(f"{name} can be read neither as JSON nor as YAML: {clip_text(str(error), 300)}") from None
    return _create_spec_without_size_check(document, name)


def create_spec(document: Any, name: str) -> Spec:
    """Check a parsed document. Raises `SpecError`."""
    if is_mapping(document) and has_more_values_than(document, MAX_SPEC_VALUES):
        raise SpecError(f"{name} is too large: it holds more than {MAX_SPEC_VALUES} values")
    return _create_spec_without_size_check(document, name)


def _parse_json_or_yaml(text: str) -> Any:
    limits = {"max_depth": MAX_SPEC_DEPTH, "max_values": MAX_SPEC_VALUES}
    if text.lstrip()[:1] == "{" and find_exceeded_limit(text, **limits) is None:
        with suppress(ValueError):  # flow style of YAML begins with a brace too
            return decode_json(text, max_depth=MAX_SPEC_DEPTH)
    return parse_yaml(text, **limits)


def _create_spec_without_size_check(document: Any, name: str) -> Spec:
    if not is_mapping(document):
        raise SpecError(f"{name} is not an OpenAPI document: expected an object, got {type(document).__name__}")
    if "swagger" in document:
        version = clip_to_visible_line(str(document["swagger"]), 20)
        raise SpecError(f"{name} is a Swagger {version} document; only OpenAPI 3.0 and 3.1 are read: {_SWAGGER_HINT}")
    version = document.get("openapi")
    if not str(version).startswith("3"):
        version_problem = (
            "has no `openapi` version"
            if version is None
            else f"has the version {clip_to_visible_line(repr(version), 40)}"
        )
        raise SpecError(
            f"{name} {version_problem}; expected an OpenAPI 3.0 or 3.1 document with `openapi: 3.x` at the top"
        )
    if not any(is_mapping(document.get(part)) for part in ("paths", "webhooks", "components")):
        raise SpecError(f"{name} has no `paths`: it has no operations")
    return Spec(document, name)


def _resolve_server_url(server: Any) -> str:
    """Return the URL of a server with its variables' defaults; empty if a variable has no default."""
    server = mapping_or_empty(server)
    variables = mapping_or_empty(server.get("variables"))
    url = string_or_empty(server.get("url"))[:2_000]
    for name in re.findall(r"\{([^{}]{1,100})\}", url)[:20]:
        url = url.replace("{" + name + "}", str(mapping_or_empty(variables.get(name)).get("default", "")))
    return clip_to_visible_line(url, 2_000)


def _read_file(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SpecError(
            f"{path.absolute()} cannot be read: {reason}; give a path, a URL, a text or an object"
        ) from None


async def _download_document(url: str, client: httpx.AsyncClient | None, max_bytes: int) -> bytes:
    import httpx

    url_without_query = _remove_query_and_credentials(url)
    try:
        if client is None or (client.base_url.host and get_origin(client.base_url) != get_origin(httpx.URL(url))):
            async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as plain_client:  # credentials stay with their API
                return await _download_document(url, plain_client, max_bytes)
        build_request = partial(client.build_request, "GET", headers={"accept-encoding": "gzip"})
        response, body = await send_following_same_origin_redirects(
            client, url, lambda url, _status: build_request(url), max_bytes
        )
    except (NoUsableResponseError, httpx.InvalidURL) as error:
        raise SpecError(f"{url_without_query} could not be loaded: {error}") from None
    if response.status_code != 200:
        raise SpecError(f"{url_without_query} could not be loaded: the server answered {response.status_code}")
    return body


class NoUsableResponseError(Exception):
    """Why a request has no answer that can be used. ``is_lost``: it may have been carried out all the same.

    ``status`` is the status of the last response, of which the rest cannot be used; None if there was none.
    """

    def __init__(self, reason: str, *, status: int | None, is_lost: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.is_lost = is_lost


async def send_following_same_origin_redirects(
    client: httpx.AsyncClient, url: str, build_request: Callable[[str, int | None], httpx.Request], max_bytes: int
) -> tuple[httpx.Response, bytes]:
    """Send a request, follow its redirects within the origin, and return the last response with its body.

    ``build_request`` makes the request for a URL and the status of the redirect to it. Raises `NoUsableResponseError`.
    """
    import httpx

    status = None
    try:
        for _ in range(MAX_REDIRECTS + 1):
            response = await client.send(build_request(url, status), stream=True, follow_redirects=False)
            try:
                location, status = response.headers.get("location"), response.status_code
                if status not in _REDIRECTS or location is None:
                    return response, await _read_response_body(response, max_bytes)
            finally:
                await response.aclose()
            target = response.url.join(location)
            if get_origin(target) != get_origin(response.url):
                reason = (
                    f"it redirects to {clip_to_visible_line(get_origin(target), 200)}, where credentials may not go"
                )
                raise NoUsableResponseError(reason, status=status)
            url = str(target)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
        reason = "no connection; nothing was sent" if status is None else "no connection after a redirect"
        raise NoUsableResponseError(reason, status=status) from None
    except httpx.HTTPError as error:
        raise NoUsableResponseError(type(error).__name__, status=status, is_lost=True) from None
    except (httpx.InvalidURL, ValueError) as error:
        reason = f"the request cannot be sent ({type(error).__name__})"
        raise NoUsableResponseError(reason, status=status) from None
    raise NoUsableResponseError(f"it redirects more than {MAX_REDIRECTS} times", status=status)


async def _read_response_body(response: httpx.Response, max_bytes: int) -> bytes:
    body = bytearray()
    if response.request.method == "HEAD" or response.status_code in (204, 205, 304):
        return b""
    try:
        async for chunk in iter_decoded_body(response):
            if len(body) + len(chunk) > max_bytes:
                reason = f"the answer is larger than {max_bytes} bytes"
                raise NoUsableResponseError(reason, status=response.status_code)
            body += chunk
    except (CodeModeFetchError, EOFError, zlib.error):
        reason = "the answer is compressed in a way that cannot be read"
        raise NoUsableResponseError(reason, status=response.status_code) from None
    return bytes(body)


def get_origin(url: httpx.URL) -> str:
    """Return scheme, host and port of a URL, without credentials."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"


def _remove_query_and_credentials(url: str) -> str:
    """Return a URL without what may hold a credential."""
    return re.sub(r"//[^/@]*@", "//", re.split(r"[?#]", url, maxsplit=1)[0])


def format_names(names: Iterable[str], max_names: int = 5) -> str:
    """Return the first names of a list, and how many more there are."""
    all_names = [*names]
    listed = ", ".join(clip_to_visible_line(name, 100) for name in all_names[:max_names])
    return f"{listed} and {len(all_names) - max_names} more" if len(all_names) > max_names else listed
