"""The pages that a person sees when the browser comes back from a sign-in."""

from __future__ import annotations

PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
SIGNED_IN = "You are signed in. This page can be closed."
DECLINED = "The sign-in was declined. This page can be closed."
UNKNOWN = (
    "Nobody waits for this sign-in here. It may be over: start it again. Where the gateway runs on several hosts, they"
    " must share its state folder, or browsers must come back to the host that began."
)
OTHER_BROWSER = (
    "This sign-in was begun in another browser, or its cookie is gone, and nobody was signed in. Open the page that you"
    " were given in this browser, and start again."
)


def page(text: str) -> str:
    """Return a page that says one sentence of this module."""
    return f"<!doctype html><title>codemode</title><p>{text}</p>"
