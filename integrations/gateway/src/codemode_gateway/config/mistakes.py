"""What is wrong at one place of a configuration, before it is known whom it concerns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codemode.data.similar_names import nearest_names
from codemode.trace.unseen import all_seen


class MistakeError(ValueError):
    """A mistake at ``path`` of the file. Its message quotes names of keys, never values: they may be secrets.

    ``lacks_value`` says that the file is right, and only what it names is not there: a variable, a file.
    """

    def __init__(self, path: str, message: str, *, lacks_value: bool = False) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message
        self.lacks_value = lacks_value


def inside(path: str, key: str) -> str:
    """Return the path of ``key`` in the object at ``path``, as a reader writes it."""
    if len(key) <= 100 and all_seen(key) and key.replace("-", "_").isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{short(key)}]"


def short(name: str) -> str:
    """Return a name in quotes, all of it seen, and bounded: names come from files that anybody may have written."""
    shown = name if len(name) <= 100 else f"{name[:100]}…"
    return '"' + "".join(one if all_seen(one) else one.encode("unicode_escape").decode() for one in shown) + '"'


def near(name: str, known: Iterable[str]) -> str:
    """Return the question that follows a message about an unknown ``name``; nothing where no name resembles it."""
    known = list(known)
    found = [one for one in known if one.lower() == name.lower()] or nearest_names(name[:100], known)
    return f"; did you mean {found[0]}?" if found else ""


def one_of(names: Sequence[str]) -> str:
    quoted = [f'"{one}"' for one in names]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if len(quoted) > 1 else quoted[0]
