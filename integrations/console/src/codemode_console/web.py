"""Client addresses, hosts, origins, headers and the server of console and gateway."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import uvicorn

from codemode.host.http_timeouts import create_header_and_send_timeout_protocol
from codemode.options.checked_fields import WrongTypeError

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp, Receive, Scope


Address: TypeAlias = IPv4Address | IPv6Address
_MAX_PROXY_HOPS = 32
_SOCKET_BACKLOG = 128
_UNIX_PEER = "unix"


class TrustedProxies:
    """Addresses and networks whose forwarding headers are believed. Raises `ValueError`.

    ``unix`` stands for peers on a Unix socket, which have no address.
    """

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        if isinstance(proxies, str):
            raise WrongTypeError(f"trusted_proxies must be a list of addresses or networks, got the text {proxies!r}")
        names = tuple(proxies)
        self._has_unix = _UNIX_PEER in names
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(
            ip_network(proxy) for proxy in names if proxy != _UNIX_PEER
        )

    def __bool__(self) -> bool:
        return self._has_unix or bool(self._networks)

    def __contains__(self, address: Address | None) -> bool:
        if address is None:
            return self._has_unix
        return any(address in network for network in self._networks)


def get_peer_address(connection: HTTPConnection) -> Address | None:
    """Return the peer's address; None on a Unix socket."""
    return None if connection.client is None else parse_address(connection.client.host)


def resolve_client_address(connection: HTTPConnection, trusted: TrustedProxies) -> Address | None:
    """Return the client's address: the peer, or the nearest untrusted one that trusted proxies report."""
    address = get_peer_address(connection)
    for text in _iterate_forwarded_addresses(connection):
        if address not in trusted:
            break
        reported = parse_address(text)
        if reported is None:
            break
        address = reported
    return address


def get_throttling_key(address: Address | None) -> str:
    """Return the network that is throttled as one client: the /64 of an IPv6 address."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, 64), strict=False))
    return "" if address is None else str(address)


def format_address(address: Address | None) -> str | None:
    """Return an address for the audit."""
    return None if address is None else str(address)


def parse_address(text: str) -> Address | None:
    """Return an address, with IPv4-mapped IPv6 as IPv4; None for other texts."""
    try:
        address = ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def _iterate_forwarded_addresses(connection: HTTPConnection) -> Iterator[str]:
    """Return the reported addresses, nearest first."""
    hops = ",".join(connection.headers.getlist("x-forwarded-for")).split(",")
    return iter(hops[: -_MAX_PROXY_HOPS - 1 : -1])


_CONTENT_SECURITY_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def create_security_headers(embed_in: Iterable[str] = ()) -> Mapping[str, str]:
    """Return the headers of all responses; pages of ``embed_in`` may frame them. Raises `ValueError`."""
    if isinstance(embed_in, str):
        raise WrongTypeError(f"embed_in must be a list of origins, got the text {embed_in!r}")
    origins = [require_origin(origin, "embed_in") for origin in embed_in]
    ancestors = " ".join(origins) or "'none'"
    headers = {
        "content-security-policy": "; ".join([*_CONTENT_SECURITY_POLICY, f"frame-ancestors {ancestors}"]),
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    if not origins:
        headers["x-frame-options"] = "DENY"
    return MappingProxyType(headers)


def require_origin(text: str, option_name: str) -> str:
    """Return an origin such as ``https://desk.acme.com``. Raises `ValueError` for other texts."""
    origin = extract_origin(text)
    if origin is None or urlsplit(text)[2:] not in (("", "", ""), ("/", "", "")):
        raise ValueError(f"{option_name} must be origins such as https://desk.example.com, got {text!r}")
    return origin


def extract_origin(text: str) -> str | None:
    """Return the origin of a URL, without a default port; None without one."""
    if not text.isascii() or not text.isprintable() or set(text) & set(" '\";,*\\"):
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


def parse_host(text: str) -> str | None:
    """Return the name or address of a ``Host`` header, without its port; None if it is invalid."""
    origin = extract_origin(f"http://{text}")
    if origin is None or set(text) & set("/?#@"):
        return None
    return urlsplit(origin).hostname


class AllowedHosts:
    """The host names of the console, against DNS rebinding.

    Addresses are always accepted, and every name if ``names`` is empty. Raises `ValueError` for invalid names.
    """

    def __init__(self, names: Iterable[str], base_origin: str | None = None) -> None:
        if isinstance(names, str):
            raise WrongTypeError(f"hosts must be a list of names, got the text {names!r}")
        parsed = [(name, parse_host(name)) for name in names]
        if any(host is None for _, host in parsed):
            raise ValueError(f"hosts must be names such as desk.example.com, got {[name for name, _ in parsed]!r}")
        host_names = {host for _, host in parsed}
        if host_names and base_origin is not None:
            host_names.add(urlsplit(base_origin).hostname)
        self._names = frozenset(host_names)

    def accepts(self, hosts: list[str]) -> bool:
        """Return whether the ``Host`` headers of a request name the console."""
        if not self._names:
            return True
        host = parse_host(hosts[0]) if len(hosts) == 1 else None
        return host is not None and (host in self._names or parse_address(host) is not None)


def get_route_path(scope: Scope) -> str:
    """Return the path below the mount point."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    is_below = path == root or path.startswith(f"{root}/")
    return path[len(root) :] if root and is_below else path


def parse_content_length(headers: Mapping[str, str]) -> int | None:
    """Return the declared body length, 0 without one; None if it is invalid."""
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


async def drain_body(receive: Receive, max_bytes: int, max_seconds: float) -> None:
    """Read and drop the rest of a body, within limits: clients that are cut off read no response."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max_seconds):
            while max_bytes > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                max_bytes -= len(message.get("body", b""))


class WebServer(uvicorn.Server):
    """uvicorn server without access log and server header.

    SIGINT and SIGTERM only call `handle_signal`: uvicorn would raise them again and end the process too early.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        header_seconds: float,
        stop_seconds: float,
        on_ready: Callable[[], None] | None = None,
        **settings: Any,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=create_header_and_send_timeout_protocol(header_seconds),
            lifespan="off",
            ws="none",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # applications read these headers, from configured proxies only
            timeout_graceful_shutdown=max(1, round(stop_seconds)),
            **settings,
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and call ``on_ready`` once connections are accepted."""
        await super().startup(sockets)
        if self._on_ready is not None:
            self._on_ready()

    def handle_signal(self, signal_number: signal.Signals) -> None:
        """Stop after a signal: the first lets requests finish, a second SIGINT does not."""
        self.handle_exit(signal_number, None)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals on the event loop while the block runs."""
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            for number in (signal.SIGINT, signal.SIGTERM):
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread's loop
                    loop.add_signal_handler(number, self.handle_signal, number)
                    stack.callback(loop.remove_signal_handler, number)
            yield


def open_server_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises `ValueError` for an invalid port, `OSError` for the address."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port must be between 0 and 65535, got {port}")
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=_SOCKET_BACKLOG)


def get_socket_url(server_socket: socket.socket) -> str:
    """Return the URL of a listening socket, such as ``http://[::1]:8765``."""
    host, port = server_socket.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
