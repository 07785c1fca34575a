"""The default HTTP client, and the addresses that it may connect to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, cast

from ..errors import CodeModeFetchError
from ..host.imports import importing
from ..host.threads import run_in_single_use_thread
from .urls import Url

if TYPE_CHECKING:
    import httpx


Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host name and port to IP addresses."""

LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")

# Own tables: what `is_global` says differs between Python's patch releases.
_REFUSED_IPV4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared address space; 100.100.100.200 is a metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # a platform's host agent, reachable only from inside
        "169.254.0.0/16",  # link-local; 169.254.169.254 is the metadata service
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_IPV6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4 carries any IPv4 address
        "3fff::/20",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public_address(address: str) -> bool:
    """Return True for an address of the public internet; False for private, local, special and invalid ones."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _REFUSED_IPV4)
    if parsed.scope_id is not None:
        return False
    if parsed in _NAT64:
        # All that an IPv6-only network has to reach IPv4 with; what counts is the address inside.
        return is_public_address(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    return parsed in _GLOBAL_IPV6 and not any(parsed in network for network in _REFUSED_IPV6)


async def resolve_host(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of a host name in the system's order. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


_CONNECT_TIMEOUT_SECONDS = 10.0
_MAX_ADDRESSES = 4
_DECODED_CHUNK_BYTES = 1 << 16
_GZIP_WINDOW_BITS = 31
# By httpx, on the event loop.
_IMPORTED_BY_A_REQUEST = ("httpcore", "anyio", "anyio._backends._asyncio", "httpcore._backends.anyio")
_has_loaded_tls = False


class StreamedResponse:
    """An `httpx.Response` whose body is decoded in bounded steps. ``aclose`` ends its connection."""

    def __init__(self, response: httpx.Response, client: httpx.AsyncClient, url: Url) -> None:
        self._response = response
        self._client = client
        self.status_code = response.status_code
        self.reason_phrase = response.reason_phrase
        self.headers = response.headers
        self.url = str(url)

    def aiter_bytes(self) -> AsyncGenerator[bytes]:
        """Yield the decoded body."""
        return iter_decoded_body(self._response)

    async def aclose(self) -> None:
        """End the exchange; the connection is not kept."""
        await self._response.aclose()
        await self._client.aclose()


async def iter_decoded_body(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the decoded body of a streamed response in bounded pieces.

    httpx inflates each chunk at once, to up to a thousand times its size. Raises `CodeModeFetchError` for another
    encoding than gzip, `EOFError` and `zlib.error` for a broken one.
    """
    if response.is_stream_consumed:  # a transport that holds no stream has read it already
        yield response.content
        return
    gunzip = _GzipDecoder() if _is_gzip_encoding_or_raise(response.headers.get("content-encoding", "")) else None
    async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_raw())) as chunks:
        async for chunk in chunks:
            for piece in (chunk,) if gunzip is None else gunzip.decode(chunk):
                yield piece
    if gunzip is not None:
        gunzip.require_complete()


async def fetch_from_addresses(
    url: Url, *, method: str, headers: Mapping[str, str], body: bytes | None, addresses: Sequence[str]
) -> StreamedResponse:
    """Send one request to the first of ``addresses`` that takes a connection; no name is resolved here.

    Server name and Host header stay those of the URL. Neither redirects, proxies, cookies nor netrc are used.
    Raises what httpx raises.
    """
    global _has_loaded_tls  # noqa: PLW0603 - once for the process
    if not _has_loaded_tls:
        await run_in_single_use_thread(_load_tls_context)
        _has_loaded_tls = True
    import httpx

    client = httpx.AsyncClient(
        verify=_load_tls_context(),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_SECONDS),
    )
    try:
        response = await _send_to_first_reachable(client, url, method, headers, body, addresses[:_MAX_ADDRESSES])
    except BaseException:
        await client.aclose()
        raise
    return StreamedResponse(response, client, url)


async def _send_to_first_reachable(
    client: httpx.AsyncClient,
    url: Url,
    method: str,
    headers: Mapping[str, str],
    body: bytes | None,
    addresses: Sequence[str],
) -> httpx.Response:
    import httpx

    failure: Exception = OSError("the host has no address")
    for address in addresses:
        pinned = Url(url.scheme, address, url.port, url.path, url.query)
        request = client.build_request(
            method,
            str(pinned),
            headers=[(b"host", url.netloc.encode("ascii")), (b"accept-encoding", b"gzip"), *_encode_headers(headers)],
            content=body,
            extensions={} if url.has_ip_host else {"sni_hostname": url.host},
        )
        try:
            return await client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            failure = error
    raise failure


def _encode_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]


@cache
def _load_tls_context() -> ssl.SSLContext:
    with importing:
        import httpx

        for name in _IMPORTED_BY_A_REQUEST:
            with suppress(ImportError):
                import_module(name)
    return httpx.create_ssl_context()


def _is_gzip_encoding_or_raise(content_encoding: str) -> bool:
    """Return True for gzip. Raises `CodeModeFetchError` for an encoding that was not requested."""
    encoding = content_encoding.strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise CodeModeFetchError("fetch: the response has a content-encoding that was not requested")
    return encoding.endswith("gzip")


class _GzipDecoder:
    """Inflates in chunks of a limited size. Data after the first member is ignored, as in httpx."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        self._began = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        self._began = self._began or bool(data)
        piece = b""
        while not self._inflate.eof and (data or len(piece) == _DECODED_CHUNK_BYTES):
            piece = self._inflate.decompress(data, _DECODED_CHUNK_BYTES)
            data = self._inflate.unconsumed_tail
            if piece:
                yield piece

    def require_complete(self) -> None:
        if self._began and not self._inflate.eof:
            raise EOFError("the compressed body ends too early")
