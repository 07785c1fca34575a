"""JSON Pointers (RFC 6901), and the names of controls that they are. Knows nothing of schemas."""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

from ..visible import is_visible

ROOT = ""
_FRAGMENT = "#"


def below(pointer: str, step: str | int) -> str:
    """Return the pointer of a member or an item."""
    return f"{pointer}/{str(step).replace('~', '~0').replace('/', '~1')}"


def pointer_to(path: tuple[str | int, ...]) -> str:
    """Return the pointer of a path of names and indices."""
    pointer = ROOT
    for step in path:
        pointer = below(pointer, step)
    return pointer


def is_within(pointer: str, outer: str) -> bool:
    """Tell whether a pointer leads to a value or into it."""
    return pointer == outer or pointer.startswith(f"{outer}/")


def above(pointer: str) -> str:
    """Return the pointer of what holds a value; of the root itself."""
    return pointer.rpartition("/")[0]


def name_of(pointer: str) -> str:
    """Return the name of a control: the pointer itself.

    In the form of a URI fragment (``#/a%0Ab``) where a browser would not keep it: a name must not be empty, and of ends
    of lines only one kind arrives.
    """
    if pointer != ROOT and is_visible(pointer):
        return pointer
    return _FRAGMENT + quote(pointer, safe="/~", errors="surrogatepass")


def pointer_of(name: str) -> str | None:
    """Return the pointer that names a control; None for another name."""
    if name.startswith("/"):
        return name
    if not name.startswith(_FRAGMENT):
        return None
    try:
        pointer = unquote_to_bytes(name[1:]).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return pointer if pointer == ROOT or pointer.startswith("/") else None
