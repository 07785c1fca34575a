# ruff: noqa: RUF001 -- look-alike characters are what is tested
"""Which URLs a fetch may ask for: the canonical form, what is refused, origins and prefixes."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from suite import each_row

from codemode.fetch.urls import UrlError, UrlRules, parse_url, resolve_redirect_url

ORIGINS = [
    "https://example.com",
    "http://plain.test:8080",
    "https://xn--mnchen-3ya.de",
    "http://127.0.0.1",
    "http://[::1]:9",
]
PREFIXES = ["https://api.test/v1", "https://api.test/v2/", "https://api.test/a%20b/c", "https://root.test"]
RULES = UrlRules.parse(ORIGINS, PREFIXES)

# The URL as the guest writes it, and the one that is asked for.
ALLOWED = [
    # origins
    ("https://example.com", "https://example.com/"),
    ("https://example.com/", "https://example.com/"),
    ("https://example.com?a=b", "https://example.com/?a=b"),
    ("https://example.com/?", "https://example.com/?"),
    ("https://example.com#f", "https://example.com/"),
    ("https://example.com/a/b?c=d#e", "https://example.com/a/b?c=d"),
    ("  https://example.com/a  ", "https://example.com/a"),
    ("HTTPS://EXAMPLE.COM/A", "https://example.com/A"),
    ("hTTps://eXample.Com:443/", "https://example.com/"),
    ("https://example.com:0443/", "https://example.com/"),
    ("https://example.com:/x", "https://example.com/x"),
    ("http://plain.test:8080/x", "http://plain.test:8080/x"),
    ("https://münchen.de/", "https://xn--mnchen-3ya.de/"),
    ("https://MÜNCHEN.DE/", "https://xn--mnchen-3ya.de/"),
    ("https://xn--mnchen-3ya.de/", "https://xn--mnchen-3ya.de/"),
    ("https://ｅｘａｍｐｌｅ.com/", "https://example.com/"),
    ("https://example。com/", "https://example.com/"),
    ("http://127.0.0.1/", "http://127.0.0.1/"),
    ("http://１２７.0.0.1/", "http://127.0.0.1/"),
    ("http://[::1]:9/", "http://[::1]:9/"),
    ("http://[0:0:0:0:0:0:0:1]:9/", "http://[::1]:9/"),
    # paths and queries
    ("https://example.com/a b", "https://example.com/a%20b"),
    ("https://example.com/ä", "https://example.com/%C3%A4"),
    ("https://example.com/%zz%4", "https://example.com/%25zz%254"),
    ("https://example.com/%41%2f", "https://example.com/%41%2f"),
    ('https://example.com/[x]|^`{}"<>', "https://example.com/%5Bx%5D%7C%5E%60%7B%7D%22%3C%3E"),
    ("https://example.com/?q=a b&r[]=ü'\"", "https://example.com/?q=a%20b&r%5B%5D=%C3%BC'%22"),
    ("https://example.com/?next=http://a@b/../c", "https://example.com/?next=http://a@b/../c"),
    ("https://example.com/a@b:c", "https://example.com/a@b:c"),
    ("https://example.com//double//slash", "https://example.com//double//slash"),
    ("https://example.com/./a/../b/.", "https://example.com/b/"),
    ("https://example.com/../../a", "https://example.com/a"),
    ("https://example.com/a/..", "https://example.com/"),
    ("https://example.com/a/%2E%2e/b", "https://example.com/b"),
    ("https://example.com/a/.%2E/b", "https://example.com/b"),
    ("https://example.com/a/%2e/b", "https://example.com/a/b"),
    ("https://example.com/...", "https://example.com/..."),
    ("https://example.com/a..b/..c", "https://example.com/a..b/..c"),
    # prefixes
    ("https://api.test/v1", "https://api.test/v1"),
    ("https://api.test/v1/", "https://api.test/v1/"),
    ("https://api.test/v1?x=../..", "https://api.test/v1?x=../.."),
    ("https://api.test/v1/users/1", "https://api.test/v1/users/1"),
    ("https://api.test/v1/a%2Fb", "https://api.test/v1/a%2Fb"),
    ("https://api.test/v0/../v1/x", "https://api.test/v1/x"),
    ("https://api.test/v1/x/%2e%2e/y", "https://api.test/v1/y"),
    ("https://api.test/v1/..x/x..", "https://api.test/v1/..x/x.."),
    ("https://api.test/v2/x", "https://api.test/v2/x"),
    ("https://api.test/a b/c/d", "https://api.test/a%20b/c/d"),
    ("https://root.test/any/thing", "https://root.test/any/thing"),
]

# No URL at all, whatever the policy: what is refused begins the message.
REFUSED = [
    ("", "is not an absolute"),
    ("/relative", "is not an absolute"),
    ("//example.com/", "is not an absolute"),
    ("example.com", "is not an absolute"),
    ("https:example.com", "is not an absolute"),
    ("https:/example.com", "is not an absolute"),
    ("ftp://example.com/", "is not an absolute"),
    ("file:///etc/passwd", "is not an absolute"),
    ("javascript:alert(1)", "is not an absolute"),
    ("data:text/plain,x", "is not an absolute"),
    ("ws://example.com/", "is not an absolute"),
    ("blob:https://example.com/x", "is not an absolute"),
    ("http\u017f://example.com/", "is not an absolute"),
    ("\u00a0https://example.com/", "is not an absolute"),
    ("https://", "has no valid host"),
    ("https:///example.com/", "has no valid host"),
    ("https://:443/", "has no valid host"),
    ("https://user@example.com/", "has credentials"),
    ("https://user:secret@example.com/", "has credentials"),
    ("https://@example.com/", "has credentials"),
    ("https://:@example.com/", "has credentials"),
    ("https://example.com@evil.test/", "has credentials"),
    ("https://example.com:443@evil.test/", "has credentials"),
    ("https://evil.test\\@example.com/", "has a backslash"),
    ("https://example.com\\@evil.test/", "has a backslash"),
    ("https:\\\\example.com\\", "has a backslash"),
    ("https://example.com/a\\..\\b", "has a backslash"),
    ("ht\ttps://example.com/", "has a backslash or a control"),
    ("https://exam\nple.com/", "has a backslash or a control"),
    ("https://example.com/\r\nx: y", "has a backslash or a control"),
    ("https://example.com\x00.evil.test/", "has a backslash or a control"),
    ("https://example.com%2eevil.test/", "has no valid host"),
    ("https://%65xample.com/", "has no valid host"),
    ("https://example.com./", "has no valid host"),
    ("https://example..com/", "has no valid host"),
    ("https://.example.com/", "has no valid host"),
    ("https://exa mple.com/", "has no valid host"),
    ("https://example.com,evil.test/", "has no valid host"),
    ("https://*.example.com/", "has no valid host"),
    ("https://-example.com/", "has no valid host"),
    (f"https://{'a' * 64}.com/", "has no valid host"),
    (f"https://{'a.' * 130}com/", "has no valid host"),
    ("https://℀.com/", "has no valid host"),
    ("https://a\u00adb\ufffd.com/", "has no valid host"),
    ("https://example.com:99999/", "has no valid port"),
    ("https://example.com:0/", "has no valid port"),
    ("https://example.com:80:80/", "has no valid host"),
    ("https://example.com:8a/", "has no valid host"),
    ("https://example.com:-1/", "has no valid host"),
    ("https://example.com:４４３/", "has no valid host"),
    ("http://2130706433/", "has an IPv4 address"),
    ("http://0x7f000001/", "has an IPv4 address"),
    ("http://0X7F.1/", "has an IPv4 address"),
    ("http://0x7f.0.0.0x1/", "has an IPv4 address"),
    ("http://017700000001/", "has an IPv4 address"),
    ("http://0177.0.0.1/", "has an IPv4 address"),
    ("http://127.0.0.01/", "has an IPv4 address"),
    ("http://127.1/", "has an IPv4 address"),
    ("http://127.0.1/", "has an IPv4 address"),
    ("http://0/", "has an IPv4 address"),
    ("http://256.1.1.1/", "has an IPv4 address"),
    ("http://1.2.3.4.5/", "has an IPv4 address"),
    ("http://127.0.0.1./", "has no valid host"),
    ("http://①②⑦.0.0.1.0x/", "has an IPv4 address"),
    ("http://[::1/", "has no valid host"),
    ("http://::1/", "has no valid host"),
    ("http://[fe80::1%25eth0]/", "has no valid host"),
    ("http://[fe80::1%eth0]/", "has no valid host"),
    ("http://[::1]x/", "has no valid host"),
    ("http://[:::1]/", "has no valid IPv6"),
    ("http://[1.2.3.4]/", "has no valid IPv6"),
    ("http://[::ffff:0x7f.1]/", "has no valid host"),
    (f"https://example.com/{'a' * 20_000}", "is longer than"),
    (f"https://example.com/{'ä' * 4_000}", "is longer than"),
]

# A URL, but none that the policy covers.
NOT_COVERED = [
    "http://example.com/",
    "https://example.com:8443/",
    "https://www.example.com/",
    "https://example.com.evil.test/",
    "https://evil.test/https://example.com/",
    "https://evil.test/?https://example.com",
    "https://evil.test/#@example.com",
    "http://plain.test/",
    "https://plain.test:8080/",
    "http://127.0.0.1:81/",
    "http://127.0.0.2/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "https://faß.de/",
    "https://exаmple.com/",  # a Cyrillic letter
    "https://api.test/",
    "https://api.test/v10",
    "https://api.test/v1.json",
    "https://api.test/V1/x",
    "https://api.test//v1/x",
    "https://api.test/v1%2Fx",
    "https://api.test/v1/../admin",
    "https://api.test/v1/%2e%2e/admin",
    "https://api.test/v1/.%2e/admin",
    "https://api.test/v1/..%2fadmin",
    "https://api.test/v1/..%5cadmin",
    "https://api.test/v1/%252e%252e/admin",
    "https://api.test/v1/%252e%252e%252fadmin",
    "https://api.test/v1/x%2f..%2f..%2fadmin",
    "https://api.test/v1/..;/admin",
    "https://api.test/v1/..;a=b/admin",
    "https://api.test/v1/..%00/admin",
    "https://api.test/v1/%25252525252525252e",
    "https://api.test/v2",
    "https://api.test/v2x/",
    "http://root.test/",
]


@each_row("given, asked", ALLOWED)
def test_an_allowed_url_is_asked_for_in_its_canonical_form(given, asked):
    url = parse_url(given)
    assert str(url) == asked
    assert RULES.allows(url)


@each_row("given, message", REFUSED)
def test_what_is_no_plain_url_is_refused(given, message):
    with pytest.raises(UrlError) as caught:
        parse_url(given)
    assert str(caught.value).startswith(message)


@each_row("given", NOT_COVERED)
def test_what_no_rule_covers_is_not_allowed(given):
    assert not RULES.allows(parse_url(given))


def test_without_idna_a_host_must_be_ascii(monkeypatch):
    monkeypatch.setitem(sys.modules, "idna", None)
    with pytest.raises(UrlError, match="xn--"):
        parse_url("https://münchen.de/")
    assert parse_url("https://xn--mnchen-3ya.de/").host == "xn--mnchen-3ya.de"


def test_without_rules_nothing_is_allowed():
    assert not UrlRules.parse((), ()).allows(parse_url("https://example.com/"))


@each_row(
    "option, entry, message",
    [
        ("allowed_origins", "*", "is not an absolute"),
        ("allowed_origins", "example.com", "is not an absolute"),
        ("allowed_origins", "https://*.example.com", "has no valid host"),
        ("allowed_origins", "https://a:b@example.com", "has credentials"),
        ("allowed_origins", "https://example.com/path", "has a path"),
        ("allowed_origins", "https://example.com?q", "has a query or a fragment"),
        ("allowed_url_prefixes", "https://example.com/a?b", "has a query or a fragment"),
        ("allowed_url_prefixes", "https://example.com/a?", "has a query or a fragment"),
        ("allowed_url_prefixes", "https://example.com/a#b", "has a query or a fragment"),
        ("allowed_url_prefixes", "https://u@example.com/a", "has credentials"),
        ("allowed_url_prefixes", "ftp://example.com/a", "is not an absolute"),
        ("allowed_url_prefixes", "/a", "is not an absolute"),
    ],
)
def test_a_wrong_rule_is_told_of_by_its_full_path(option, entry, message):
    lists = {"allowed_origins": (), "allowed_url_prefixes": ()} | {option: (entry,)}
    with pytest.raises(ValueError, match="fetch_policy") as caught:
        UrlRules.parse(*lists.values())
    assert str(caught.value).startswith(f"fetch_policy.{option}: {entry!r} {message}")


@each_row(
    "location, leads_to",
    [
        ("/x", "https://example.com/x"),
        ("x", "https://example.com/a/x"),
        ("../x", "https://example.com/x"),
        ("%2e%2e/x", "https://example.com/x"),
        ("?q", "https://example.com/a/b?q"),
        ("#f", "https://example.com/a/b?c"),
        ("", "https://example.com/a/b?c"),
        ("//evil.test/x", "https://evil.test/x"),
        ("http://evil.test", "http://evil.test/"),
        ("/ü?ü", "https://example.com/%C3%BC?%C3%BC"),
    ],
)
def test_a_location_is_relative_to_the_url(location, leads_to):
    assert str(resolve_redirect_url(parse_url("https://example.com/a/b?c"), location)) == leads_to


@each_row(
    "location", ["javascript:x", "https:\\\\evil.test", "/\t/evil.test", "http://a@b/", "//[::1", "ftp://example.com/"]
)
def test_a_location_that_is_no_plain_url_is_refused(location):
    with pytest.raises(UrlError):
        resolve_redirect_url(parse_url("https://example.com/a/b?c"), location)


TRICKY = st.sampled_from(
    [*"/\\?#@:;.%&[]|^ äß\t１ſ", "..", "%2e", "%2F", "%zz", "http://", "https://", "a", "1", "0x7f"]
)
paths = st.lists(TRICKY | st.characters(), max_size=12).map("".join)


@given(st.sampled_from(["", "http://h", "https://h:8", "https://h/", "http://[::1]"]), paths)
@example("https://h/", "%%%2")
@example("http://h", "/a?b?c/../%2e%2e#d?e")
def test_every_parser_reads_an_accepted_url_alike(start: str, rest: str):
    try:
        url = parse_url(start + rest)
    except UrlError:
        return
    text = str(url)
    assert text.isascii()
    assert parse_url(text) == url
    by_httpx = httpx.URL(text)
    assert (by_httpx.scheme, by_httpx.netloc.decode(), by_httpx.raw_path.decode()) == (
        url.scheme,
        url.netloc,
        url.target,
    )
    by_stdlib = urlsplit(text)
    assert (by_stdlib.scheme, by_stdlib.netloc, by_stdlib.path) == (url.scheme, url.netloc, url.path)
    assert not {".", ".."} & {segment.lower().replace("%2e", ".") for segment in url.path.split("/")}


@given(paths)
def test_a_prefix_is_never_left(rest: str):
    rules = UrlRules.parse((), ["https://h/a/b"])
    try:
        url = parse_url("https://h/a/b" + rest)
    except UrlError:
        return
    if rules.allows(url):
        assert url.host == "h"
        assert url.path == "/a/b" or url.path.startswith("/a/b/")
