"""Embed texts with a function of the host, in batches, and find near vectors."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from operator import mul
from typing import Any, NamedTuple, cast

from ...host.cancellation import FAILURES
from ...host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent
from ...host.threads import Errands

MAX_DIMENSION = 1 << 14
_LOOKED_AT = 512  # so many of the nearest by sign alone are compared in full


class Vector(NamedTuple):
    """A direction: numbers of length 1 together, or of length 0, and which of them are above 0, as bits."""

    numbers: array[float]
    signs: int


def vectors_of(given: Any, count: int, dimension: int | None) -> list[Vector]:
    """Return what was given as vectors. Raises `ValueError` unless they are ``count`` rows of ``dimension`` numbers."""
    rows = _listed(given)
    if len(rows) != count:
        raise ValueError(f"it gave {len(rows)} vectors for {count} texts")
    vectors: list[Vector] = []
    for row in rows:
        numbers = _listed(row)
        if not numbers:
            raise ValueError("it gave a vector without numbers")
        dimension = dimension or len(numbers)
        if len(numbers) != dimension or dimension > MAX_DIMENSION:
            raise ValueError(f"it gave a vector of {len(numbers)} numbers, not of {dimension}")
        vectors.append(_direction(numbers))
    return vectors


def _listed(given: Any) -> list[Any]:
    to_list = getattr(given, "tolist", None)  # of numpy, which need not be here
    held = to_list() if callable(to_list) else given
    if not isinstance(held, Sequence | array) or isinstance(held, str | bytes | bytearray):
        raise ValueError(f"it gave a {type(given).__name__}, not a list of vectors of numbers")  # noqa: TRY004
    return list(cast("Iterable[Any]", held))


def _direction(numbers: list[Any]) -> Vector:
    for number in numbers:
        if isinstance(number, bool) or not hasattr(number, "__float__"):
            raise ValueError(f"it gave a vector with a {type(number).__name__} in it")
    try:
        floats = list(map(float, numbers))
    except OverflowError:
        raise ValueError("it gave a vector with a number without bounds") from None
    most = max(map(abs, floats))
    if not math.isfinite(sum(map(abs, floats))) and not all(map(math.isfinite, floats)):
        raise ValueError("it gave a vector with a number that is not finite")
    # By the largest first: squares of what is very large or very small are not numbers any more.
    scaled = [number / most for number in floats] if most else floats
    length = math.sqrt(sum(map(mul, scaled, scaled))) or 1.0
    signs = "".join("1" if number > 0 else "0" for number in scaled)
    return Vector(array("f", [number / length for number in scaled]), int(signs, 2))


def nearest(to: Vector, vectors: Sequence[Vector], among: Iterable[int], limit: int) -> list[tuple[int, float]]:
    """Return places in ``vectors`` and their cosines, the nearest first; where there are very many, almost surely."""
    places = list(among)
    if len(places) > _LOOKED_AT:
        signs = to.signs
        apart = sorted([((signs ^ vectors[place].signs).bit_count(), place) for place in places])
        places = [place for _, place in apart[: max(_LOOKED_AT, 4 * limit)]]
    cosines = [(sum(map(mul, to.numbers, vectors[place].numbers)), -place) for place in places]
    return [(-place, cosine) for cosine, place in nlargest(limit, cosines)]


# Whatever that function does, raise, hang, or give something else than vectors, costs a warning.

Embed = Callable[[list[str]], Any]

WAIT_SECONDS = 2.0
_PAUSE_SECONDS = 30.0  # after it was slow, no search waits for it
_BATCH = 64
_KEPT_QUERIES = 256
_KEPT_VECTORS = 10_000  # beside those in use: conversations with other tools may come back to theirs


class Unusable(Exception):  # noqa: N818 - no error of the search
    """What was asked of the host's function cannot be had. Says why, and nothing of what the function said itself."""


class Embeddings:
    """The vectors of texts. Shared by the versions of an index; safe to use from several threads and loops.

    A sync function is called in a thread, one call at a time, and an async one on the loop of the search.
    """

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._is_async = is_async(embed)
        self._threads = Errands("codemode-embed", 1)
        self._lock = forkable_lock()
        self._vectors: dict[bytes, Vector] = {}
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._dimension: int | None = None
        self._waiting: dict[bytes, str] = {}
        self._job: asyncio.Task[None] | None = None
        self._has_errand = False
        self._problem: str | None = None
        self._quiet_until = 0.0
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: neither the thread nor the loop that asks is in it."""
        leave_to_the_parent(self._job)
        self._job, self._has_errand = None, False

    def of_texts(self, digests: list[bytes]) -> list[Vector] | None:
        """Return the vectors of all these texts, once each of them has one."""
        vectors = self._vectors
        try:
            return [vectors[digest] for digest in digests]
        except KeyError:
            return None

    async def of_query(self, query: str) -> Vector:
        """Return the vector of a query. Raises `Unusable`, after two seconds at most."""
        kept = self._queries.get(query)
        if kept is not None:
            return kept
        if time.monotonic() < self._quiet_until:
            raise Unusable("embed was too slow a moment ago")
        try:
            [vector] = await bounded(self._asked([query]), "embed", WAIT_SECONDS)
        except TooSlow:
            self._quiet_until = time.monotonic() + _PAUSE_SECONDS
            raise
        with self._lock:
            self._queries[query] = vector
            if len(self._queries) > _KEPT_QUERIES:
                self._queries.popitem(last=False)
        return vector

    def prepare(self, texts: Mapping[bytes, str]) -> str | None:
        """Have vectors made, beside whatever goes on, of those texts that have none. Returns what went wrong before."""
        with self._lock:
            problem = self._problem
            if len(self._vectors) > 2 * len(texts) + _KEPT_VECTORS:
                self._vectors = {digest: self._vectors[digest] for digest in texts if digest in self._vectors}
            missing = {digest: text for digest, text in texts.items() if digest not in self._vectors}
            if not missing:
                self._problem = None
                return None
            self._waiting = missing
        if not self._is_async:
            self._send()
        elif self._job is None or self._job.done() or self._job.get_loop().is_closed():
            self._job = asyncio.get_running_loop().create_task(self._embed_on_the_loop())
        return problem

    def _send(self) -> None:
        with self._lock:
            if self._has_errand:
                return
            self._has_errand = True
        self._threads.send(self._embed_a_batch)

    def _embed_a_batch(self) -> None:
        batch = self._next_batch()
        try:
            given = self._embed(list(batch.values()))
            if inspect.isawaitable(given):
                self._is_async = True  # the next search goes on with it, on its loop
                _close(given)
                return
            self._keep(batch, self._checked(given, len(batch)))
        except FAILURES as error:
            self._stop(reason_of(error, "embed"))
        finally:
            with self._lock:
                self._has_errand = False
        if self._waiting:
            self._send()  # a new errand, so that a query comes between two batches

    async def _embed_on_the_loop(self) -> None:
        while batch := self._next_batch():
            try:
                self._keep(batch, await bounded(self._asked(list(batch.values())), "embed", None))
            except Unusable as unusable:
                self._stop(str(unusable))

    def _next_batch(self) -> dict[bytes, str]:
        with self._lock:
            some = zip(range(_BATCH), self._waiting.items(), strict=False)
            return dict(item for _, item in some)

    def _keep(self, batch: dict[bytes, str], vectors: list[Vector]) -> None:
        with self._lock:
            self._vectors.update(zip(batch, vectors, strict=True))
            self._problem = None
            for digest in batch:
                self._waiting.pop(digest, None)

    def _stop(self, problem: str) -> None:
        # Begun again by the next search: what was wrong may have been mended.
        with self._lock:
            self._waiting = {}
            self._problem = problem

    async def _asked(self, texts: list[str]) -> list[Vector]:
        given = self._embed(texts) if self._is_async else await self._threads.run(lambda: self._embed(texts))
        if inspect.isawaitable(given):
            self._is_async = True
            given = await given
        return await self._threads.run(lambda: self._checked(given, len(texts)))

    def _checked(self, given: Any, count: int) -> list[Vector]:
        try:
            vectors = vectors_of(given, count, self._dimension)
        except ValueError as error:
            raise Unusable(f"embed cannot be used: {error}") from None
        with self._lock:
            if self._dimension is None:
                self._dimension = len(vectors[0].numbers)
        return vectors


def _close(awaitable: Any) -> None:
    close = getattr(awaitable, "close", None)
    if callable(close):
        close()  # a coroutine that nobody awaits would be warned of


class TooSlow(Unusable):
    """The host's function did not answer in time."""


def is_async(function: Any) -> bool:
    """Tell whether calling it gives a coroutine."""
    called: Any = getattr(function, "__call__", None)  # noqa: B004 - looked at, not called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def bounded(work: Awaitable[Any], what: str, seconds: float | None) -> Any:
    """Await what the host's function gives. Raises `Unusable` for whatever it raises, and when it takes longer."""
    task = asyncio.ensure_future(_caught(work))
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()  # nobody waits for one that does not listen
    if not task.done():
        raise TooSlow(f"{what} took longer than {seconds:g} seconds")
    value, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    if error is not None:
        raise Unusable(reason_of(error, what)) from error
    return value


async def _caught(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    # A `SystemExit` that leaves a task ends the loop.
    try:
        return await work, None
    except FAILURES as error:
        return None, error


def reason_of(error: BaseException, what: str) -> str:
    """Return what may be told of an error of the host's function: nothing that it says."""
    if isinstance(error, Unusable):
        return str(error)
    return f"{what} raised {type(error).__name__}"
