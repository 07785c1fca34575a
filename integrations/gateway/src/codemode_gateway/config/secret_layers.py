"""What is looked for while more of it comes: a new secret is found at once, and nobody waits for all the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from codemode.host.threads import Errands

from .secret_forms import forms_of
from .secret_search import Search

_MOST_FRESH = 32
"""So many are put together anew whenever one comes, by whoever brings it: on the event loop, if that is where."""


class LookedFor(NamedTuple):
    """Searches that together find all there is; ``shortest`` is what they find at least, 0 where they find nothing."""

    searches: tuple[Search, ...]
    shortest: int
    has_digits: bool


class SecretLayers:
    """Searches for the secrets that ``known`` gives, which is called with the ``lock`` held, as is `take`.

    A search is never changed. The last ones are in one of their own that is made anew for each; where that has too
    many it stays as it is, the next ones begin another, and a thread makes one of all. Whatever ``known`` gives is in
    one of them at any time; what it gives no more may be found for a while.
    """

    looked_for: LookedFor

    def __init__(self, lock: threading.RLock, known: Callable[[], set[str]]) -> None:
        self._lock, self._known = lock, known
        self._full: tuple[Search, ...] = ()
        self._last = Search({})
        self._fresh: dict[str, None] = {}  # what is in the last
        self._is_merging = False
        self.take(known())

    def take(self, new: Iterable[str]) -> None:
        """Look for these too from now on."""
        known = self._known()
        self._fresh = {one: None for one in (*self._fresh, *new) if one in known}
        self._last = Search(forms_of(self._fresh))
        if len(self._fresh) > _MOST_FRESH:
            self._full, self._last, self._fresh = (*self._full, self._last), Search({}), {}
        self._look()
        if len(self._full) > 1 and not self._is_merging:
            self._is_merging = True
            Errands("codemode-secrets", 1, idle_seconds=0).send(self._merge)

    def _look(self) -> None:
        used = tuple(one for one in (*self._full, self._last) if one.shortest)
        shortest = min((one.shortest for one in used), default=0)
        self.looked_for = LookedFor(used, shortest, any(one.has_digits for one in used))

    def _merge(self) -> None:
        while True:
            with self._lock:
                merged, known = self._full, self._known().difference(self._fresh)
                if len(merged) < 2:
                    self._is_merging = False
                    return
            search = Search(forms_of(known))
            with self._lock:  # what has come meanwhile is behind
                self._full = (search, *self._full[len(merged) :])
                self._look()
