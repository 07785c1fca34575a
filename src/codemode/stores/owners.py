"""Names of those that claim: what a person needs to find them, and what tells each from all others."""

from __future__ import annotations

import os
import secrets
import socket

_MOST_HOST_CHARACTERS = 100


def new_owner() -> str:
    """Return the name of one that claims: its host, its process, and random digits."""
    return f"{socket.gethostname()[:_MOST_HOST_CHARACTERS]} process {os.getpid()} {secrets.token_hex(8)}"
