"""The texts that give a secret away: itself, its parts that are secret alone, and what encodings make of it. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from contextlib import suppress

from .unescaping import views_of

SHORTEST = 4
# From here on a text is taken out wherever it stands; shorter ones may be parts of ordinary words.
SHORTEST_ANYWHERE = 8
_SHORTEST_ENCODED = 8
_SHORTEST_LINE = 20
_SCHEMES = ("bearer", "basic", "token", "apikey", "api-key", "key", "digest", "negotiate")


def forms_of(secrets: Iterable[str]) -> dict[str, bool]:
    """Return every text to look for; true for those that are taken out only where they stand alone."""
    found: dict[str, bool] = {}
    for secret in secrets:
        for text in _parts(secret):
            if len(text) >= SHORTEST:
                found[text] = len(text) < SHORTEST_ANYWHERE
            if len(text) >= SHORTEST_ANYWHERE:
                found.update((form, False) for form in _encoded(text) if len(form) >= _SHORTEST_ENCODED)
            elif len(text) >= SHORTEST:
                found.update((form, True) for form in _whole(text))
    return found


def alone(text: str, start: int, end: int) -> bool:
    """Whether no letter or digit stands beside this place."""
    before = start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_")
    return not before and not (end < len(text) and (text[end].isalnum() or text[end] == "_"))


def _parts(secret: str) -> Iterator[str]:
    """Yield the secret, and what of it a server may say without the rest: the token of a header, a line of a key."""
    yield secret
    bare = secret.strip()
    # Where its own characters look like escapes they are resolved together with those of whoever wrote it.
    yield from (view.text for view in views_of(bare))
    if " " in bare:
        yield bare.replace(" ", "+")  # as forms write it
        scheme, _, rest = bare.partition(" ")
        if scheme.lower() in _SCHEMES:
            yield rest.strip()
            if scheme.lower() == "basic":
                yield from _password(rest.strip())
    if "\n" in bare:
        yield bare.replace("\r\n", "\n")
        lines = [line.strip() for line in bare.splitlines()]
        yield from (line for line in lines if len(line) >= _SHORTEST_LINE and not line.startswith("-----"))


def _password(credentials: str) -> Iterator[str]:
    with suppress(ValueError, binascii.Error):
        both = base64.b64decode(credentials, validate=True).decode()
        yield both
        yield both.partition(":")[2]


def _encoded(text: str) -> Iterator[str]:
    data = text.encode(errors="surrogatepass")
    yield from (data.hex(), data.hex().upper())
    # In base64 a text looks in one of three ways, by what stands before it; the outermost digits belong to both.
    for before in range(3):
        digits = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        inner = digits[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
    yield from _whole(text)


def _whole(text: str) -> Iterator[str]:
    data = text.encode(errors="surrogatepass")
    for digits in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
        yield digits
        yield digits.rstrip("=")
