"""Tells a signing key that nobody has made at random: one that was left as a document or an example had it."""

from __future__ import annotations

import re
from itertools import pairwise

HOW_TO_MAKE = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'
"""Makes a key that nobody guesses."""

_LEAST_DIFFERENT = 7
"""Of 32 random digits one time in sixty thousand fewer differ, of all other random texts never."""
_MOST_BYTES_READ = 256
# Both of letters and digits of a key alone: what is written everywhere in the place of one, and what ours have there.
_WORDS = re.compile(rb"(?:change|replace)(?:me|this|it)|placeholder|your(?:secret|signing|key)|randomcharacters")
_OUR_WORDS = re.compile(rb"^32bytes|randombytes|onlyforthisexample")
_BESIDE_WORDS = re.compile(rb"[^a-z0-9]+")


def is_placeholder(key: bytes) -> bool:
    """Whether a key is evidently none: a few characters, a text again and again, digits in a row, or such words."""
    head = key[:_MOST_BYTES_READ]
    if len(set(head)) < _LEAST_DIFFERENT or _WORDS.search(_plain(head)):
        return True
    steps = sum(after - before == 1 for before, after in pairwise(head))
    return steps * 4 >= len(head) * 3 or any(head.startswith(head[at:]) for at in range(1, len(head) // 2 + 1))


def is_of_our_documents(key: bytes) -> bool:
    """Whether a key is what our documents and examples show, which run with it."""
    return _OUR_WORDS.search(_plain(key[:_MOST_BYTES_READ])) is not None


def _plain(key: bytes) -> bytes:
    return _BESIDE_WORDS.sub(b"", key.lower())
