"""TLS context and redirects for requests of the gateway."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from functools import cache

import httpx2


@cache
def get_tls_context() -> ssl.SSLContext:
    """Return the default TLS context of httpx2, created once from the environment."""
    return httpx2.create_ssl_context()


MAX_REDIRECTS = 5
_METHOD_KEEPING_STATUSES = (307, 308)
_MOVED_STATUSES = (301, 302)
_MAX_URL_CHARACTERS = 200


class RefusedRedirectError(Exception):
    """A redirect that is not followed. The message has its target, the reason and what to do."""


async def send_following_redirects(
    send: Callable[[httpx2.Request], Awaitable[httpx2.Response]],
    request: httpx2.Request,
    on_redirect: Callable[[httpx2.URL, httpx2.URL], object] = lambda _from, _to: None,
) -> httpx2.Response:
    """Send a request, follow its redirects, and return the last response.

    ``on_redirect`` gets the old and the new URL. Raises `RefusedRedirectError` as `create_redirected_request` does,
    and for more than `MAX_REDIRECTS` redirects.
    """
    for _ in range(MAX_REDIRECTS + 1):
        response = await send(request)
        try:
            following = create_redirected_request(request, response)
        except RefusedRedirectError:
            await response.aclose()
            raise
        if following is None:
            return response
        await response.aclose()
        on_redirect(request.url, following.url)
        request = following
    raise RefusedRedirectError(
        f"it redirects more than {MAX_REDIRECTS} times, last to {format_url_without_secrets(request.url)}"
    )


def create_redirected_request(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request | None:
    """Return the request to the target of a redirect, or None if the response is not a redirect.

    Redirects within the origin, and from http to https on the same host (also with 301 and 302), keep method, headers
    and body. Raises `RefusedRedirectError` for any other.
    """
    if not response.has_redirect_location:
        return None
    status, url = response.status_code, request.url
    try:
        target = url.join(response.headers["location"])
    except httpx2.InvalidURL:
        raise RefusedRedirectError("it redirects to an invalid URL") from None
    target_text = format_url_without_secrets(target)
    if not is_trusted_redirect(url, target) or (target.userinfo and target.userinfo != url.userinfo):
        raise RefusedRedirectError(_describe_refused_redirect(url, target, target_text))
    is_kept = (
        status in _METHOD_KEEPING_STATUSES
        or request.method == "GET"
        or (status in _MOVED_STATUSES and target.scheme != url.scheme)
    )
    if not is_kept:
        raise RefusedRedirectError(
            f"it redirects to {target_text} with the status {status}, which drops the request body: use that URL as url"
            " of the server's entry"
        )
    return copy_request_to(request, target)


def is_trusted_redirect(url: httpx2.URL, target: httpx2.URL) -> bool:
    """Return whether ``target`` has the origin of ``url``, or is the same host with https instead of http."""
    if (url.scheme, url.host, url.port) == (target.scheme, target.host, target.port):
        return True
    return (url.scheme, target.scheme) == ("http", "https") and url.host == target.host


def copy_request_to(request: httpx2.Request, target: httpx2.URL) -> httpx2.Request:
    """Return a copy of the request, with headers and body, for another URL."""
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
    return httpx2.Request(
        request.method, target, headers=headers, content=request.content, extensions=request.extensions
    )


def format_url_without_secrets(url: httpx2.URL) -> str:
    """Return a URL shortened, without user information, query and fragment."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))[:_MAX_URL_CHARACTERS]


def _describe_refused_redirect(url: httpx2.URL, target: httpx2.URL, where: str) -> str:
    if url.host == target.host and url.scheme == "https" and target.scheme == "http":
        secured = format_url_without_secrets(target.copy_with(scheme="https", port=url.port))
        return (
            f"it redirects from https to {where}: nothing is sent there. A proxy in front of it may not forward the"
            f" scheme https; try {secured} as url of the server's entry"
        )
    return (
        f"it redirects to {where}, another origin: nothing is sent there. If the server has moved, use that URL as"
        " url of its entry"
    )
