"""Which addresses a fetch connects to: the check after name resolution, and the connection bound to its result."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
from fetching import HIDDEN, ask_at, refusal, run_with
from http_server import HttpServer, response
from self_signed import self_signed
from suite import each_row

from codemode.fetch.client import is_public_address

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "192.0.1.1", "100.63.0.1", "100.128.0.1",
          "2606:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "64:ff9b::808:808"]  # fmt: skip
REFUSED = [
    "127.0.0.1", "127.255.255.255", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "192.88.99.1", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "fe80::1", "fe80::1%1", "fec0::1",
    "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1",
    "2001:0:4136:e378::1", "2001:db8::1", "2001:2::1", "3fff::1", "100::1", "5f00::1", "2606:4700::1111%1", "", "name",
]  # fmt: skip


@each_row("address", PUBLIC)
def test_public_addresses_pass(address):
    assert is_public_address(address)


@each_row("address", REFUSED)
def test_everything_else_does_not(address):
    assert not is_public_address(address)


class Resolver:
    """Answers each question with the next list of addresses."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        return self.answers.pop(0)


@pytest.fixture
def resolving(monkeypatch):
    """Replace name resolution. Nobody else may resolve a name behind our back."""

    def replace(*answers):
        resolver = Resolver(*answers)
        monkeypatch.setattr("codemode.fetch.fetcher.resolve_host", resolver)
        return resolver

    original = asyncio.BaseEventLoop.getaddrinfo

    async def getaddrinfo(self, host, port, **settings):
        try:
            socket.inet_aton(host)
        except OSError:
            raise AssertionError(f"a second resolution of {host}") from None
        return await original(self, host, port, **settings)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return replace


@pytest.fixture
def loopback_is_public(monkeypatch):
    """127.0.0.1 plays the public address, every other one is private."""
    monkeypatch.setattr("codemode.fetch.fetcher.is_public_address", lambda address: address == "127.0.0.1")


def named(server, name="rebinding.test"):
    return f"{'https' if server.tls else 'http'}://{name}:{server.port}"


def ask(server, js, **policy):
    origin = named(server)
    return ask_at(server, js.replace("NAMED", origin), **{"allowed_origins": [origin], **policy})


@pytest.mark.parametrize(
    "addresses", [["10.0.0.1"], ["169.254.169.254"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"]]
)
def test_a_name_with_a_private_address_is_refused(server, resolving, addresses):
    resolving(addresses)
    name, code, text, _ = ask(server, refusal('fetch("NAMED/x")'))
    assert (name, code) == ("CodeModeFetchError", "CODE_MODE_FETCH_ERROR")
    assert "rebinding.test has an address that is not public" in text
    assert not any(address in text for address in addresses)
    assert server.requests == []


def test_a_public_answer_is_what_is_connected_to(server, resolving, monkeypatch):
    resolving(["93.184.216.34", "2606:2800::1"], ["10.0.0.1"])
    connected = []

    async def fetch_pinned(url, **how):
        connected.append((str(url), how["addresses"]))
        raise OSError

    monkeypatch.setattr("codemode.fetch.fetcher.fetch_from_addresses", fetch_pinned)
    assert ask(server, refusal('fetch("NAMED/x")')) == HIDDEN
    assert connected == [(named(server) + "/x", ("93.184.216.34", "2606:2800::1"))]


def test_a_rebinding_name_cannot_move_the_connection(server, resolving, loopback_is_public):
    server.on("/x", response(b"the checked one"))
    resolver = resolving(["127.0.0.1"], ["127.0.0.2"])
    js = """
      const first = await (await fetch("NAMED/x")).text();
      return [first, await fetch("NAMED/x").catch(e => e.message)]
    """
    first, second = ask(server, js)
    assert first == "the checked one"
    assert "not public" in second
    assert resolver.asked == [("rebinding.test", server.port)] * 2
    assert [request.headers["host"] for request in server.requests] == [f"rebinding.test:{server.port}"]


def test_every_hop_is_checked_anew(server, resolving, loopback_is_public):
    server.on("/x", response(b"", "302 Found", location="/y"))
    resolving(["127.0.0.1"], ["127.0.0.2"])
    assert "not public" in ask(server, refusal('fetch("NAMED/x")'), allow_redirects=True)[2]
    assert server.asked() == ["GET /x"]


def test_the_next_address_is_tried_when_one_takes_no_connection(server, resolving):
    server.on("/x", response(b"second"))
    resolving(["127.0.0.3", "127.0.0.1"])
    js = 'return (await fetch("NAMED/x", { method: "POST", body: "once" })).text()'
    assert ask(server, js, refuse_private_addresses=False) == "second"
    assert [request.body for request in server.requests] == [b"once"]


def test_a_name_that_does_not_resolve_tells_the_guest_nothing(server, resolving):
    resolving()
    assert ask(server, refusal('fetch("NAMED/x")')) == HIDDEN
    resolving([])
    assert ask(server, refusal('fetch("NAMED/x")')) == HIDDEN


@pytest.mark.parametrize("name", ["localhost", "any.localhost"])
def test_localhost_is_never_resolved(server, resolving, name):
    server.on("/x", response(b"here"))
    resolving()
    js = f'return (await fetch("{named(server, name)}/x")).text()'
    assert ask_at(server, js, allowed_origins=[named(server, name)]) == "here"


@pytest.fixture
def server_on_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    running = HttpServer(host="::1").start()
    yield running
    running.stop()


def test_ipv6_is_reached_by_address_and_by_name(server_on_ipv6):
    server_on_ipv6.on("/x", response(b"six"))
    by_name = named(server_on_ipv6, "localhost")
    for origin in (server_on_ipv6.origin, by_name):
        assert ask_at(server_on_ipv6, f'return (await fetch("{origin}/x")).text()', allowed_origins=[origin]) == "six"
    hosts = [request.headers["host"] for request in server_on_ipv6.requests]
    assert hosts == [f"[::1]:{server_on_ipv6.port}", f"localhost:{server_on_ipv6.port}"]


def test_a_function_of_the_host_is_called_for_public_names_only(resolving):
    calls = []

    async def fetch(url, **how):
        calls.append(url)
        raise OSError

    policy = {"fetch": fetch, "allowed_origins": ["http://a.test"]}
    resolving(["10.0.0.1"], ["8.8.8.8"])
    assert run_with(refusal('fetch("http://a.test/1")'), {"fetch_policy": policy})[0] == "CodeModeFetchError"
    assert run_with(refusal('fetch("http://a.test/2")'), {"fetch_policy": policy}) == HIDDEN
    unchecked = {**policy, "refuse_private_addresses": False}
    assert run_with(refusal('fetch("http://a.test/3")'), {"fetch_policy": unchecked}) == HIDDEN
    assert calls == ["http://a.test/2", "http://a.test/3"]


# --- TLS: the certificate is that of the name, although an address is connected to ---


@pytest.fixture
def tls_server(tmp_path, monkeypatch):
    key, certificate = self_signed("rebinding.test")
    files = tmp_path / "key.pem", tmp_path / "certificate.pem"
    files[0].write_bytes(key)
    files[1].write_bytes(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[0])
    names = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    trusting = ssl.create_default_context(cafile=str(files[1]))
    monkeypatch.setattr("codemode.fetch.client._load_tls_context", lambda: trusting)
    running = HttpServer(tls=context).start()
    yield running, names
    running.stop()


def test_tls_asks_for_and_checks_the_name(tls_server, resolving, loopback_is_public):
    server, names = tls_server
    server.on("/x", response(b"sealed"))
    resolving(["127.0.0.1"], ["127.0.0.1"])
    assert ask(server, 'return (await fetch("NAMED/x")).text()') == "sealed"
    assert names == ["rebinding.test"]
    assert server.requests[0].headers["host"] == f"rebinding.test:{server.port}"
    wrong = named(server, "other.test")
    assert ask(server, refusal(f'fetch("{wrong}/x")'), allowed_origins=[wrong]) == HIDDEN
    assert len(server.requests) == 1
