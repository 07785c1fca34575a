"""The host that a person is told before opening a page is the one that every browser opens."""

from __future__ import annotations

import pytest
from codemode_gateway.page_urls import PageURLError, is_safe_page_url, require_safe_page_host

SHOWN = {
    "https://accounts.example/o?next=https://evil.example/@x": "accounts.example",
    "https://Accounts.EXAMPLE:8443/o#@evil.example": "accounts.example",
    "http://127.0.0.1:5000/callback": "127.0.0.1",
    "http://[::1]:5000/": "[::1]",
    "http://[0:0::1]/": "[::1]",
    "https://bücher.example/": "xn--bcher-kva.example",
    "https://faß.example/": "xn--fa-hia.example",
    "https://\u0430ccounts.example/": "xn--ccounts-1fg.example",  # its first letter is Cyrillic
    "https://accounts。example/": "accounts.example",
    "https://my_app.example./x": "my_app.example.",
}
REFUSED = [
    r"https://evil.example\@accounts.example/",
    r"https:\\evil.example",
    "https://accounts.example@evil.example/",
    "https://accounts.example%40evil.example/",
    "https://accounts%2eexample/",
    "https://evil.example\t/",
    "https://evil.example\n.accounts.example/",
    "https://evil.example /",
    "https://accounts.example\u202e/",
    "https:///evil.example",
    "https:evil.example",
    "//evil.example",
    "javascript:alert(1)",
    "https://evil.example:0/",
    "https://evil.example:port/",
    "https://[::1",
    "https://evil.example[::1]/",
    "https://[::1].evil.example/",
    "https://[::1%25eth0]/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://127.1/",
    "https://0177.0.0.1/",
    "https://a<b/",
    "https://xn--\u00fc/",
    "https://x/" + "y" * 9000,
    "",
    None,
    7,
]


def test_page_host_names_the_host_as_a_browser_reads_it():
    for url, host in SHOWN.items():
        assert require_safe_page_host(url) == host, url
        assert is_safe_page_url(url), url


def test_ambiguous_urls_are_refused_with_a_reason():
    assert [url for url in REFUSED if is_safe_page_url(url)] == []
    for url in REFUSED:
        with pytest.raises(PageURLError, match="must"):
            require_safe_page_host(url)
