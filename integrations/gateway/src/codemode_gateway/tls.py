"""The authorities that clients of HTTP trust, read once for the process: reading them takes tens of milliseconds."""

from __future__ import annotations

import ssl
from functools import cache

import httpx2


@cache
def tls_context() -> ssl.SSLContext:
    """Return what a client of httpx2 makes for itself, from the environment as it is at the first call."""
    return httpx2.create_ssl_context()
