"""Embed texts in batches with a function of the host, and find similar vectors."""

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
from ...host.forks import create_fork_safe_lock, never_finalize_in_child, register_fork_reset
from ...host.threads import BackgroundThreads

MAX_DIMENSION = 1 << 14
_MAX_COMPARED = 512  # this many of the nearest by sign bits are compared exactly


class Vector(NamedTuple):
    """A vector of length 1 (or 0), and the signs of its numbers as bits."""

    numbers: array[float]
    signs: int


def parse_unit_vectors(value: Any, count: int, dimension: int | None) -> list[Vector]:
    """Return vectors. Raises `ValueError` unless there are ``count`` rows of ``dimension`` numbers."""
    rows = _to_list(value)
    if len(rows) != count:
        raise ValueError(f"it gave {len(rows)} vectors for {count} texts")
    vectors: list[Vector] = []
    for row in rows:
        numbers = _to_list(row)
        if not numbers:
            raise ValueError("it gave a vector without numbers")
        dimension = dimension or len(numbers)
        if len(numbers) != dimension or dimension > MAX_DIMENSION:
            raise ValueError(f"it gave a vector of {len(numbers)} numbers, not of {dimension}")
        vectors.append(_to_unit_vector(numbers))
    return vectors


def _to_list(value: Any) -> list[Any]:
    to_list = getattr(value, "tolist", None)  # numpy's, which may be missing
    items = to_list() if callable(to_list) else value
    if not isinstance(items, Sequence | array) or isinstance(items, str | bytes | bytearray):
        raise ValueError(f"it gave a {type(value).__name__}, not a list of vectors of numbers")  # noqa: TRY004
    return list(cast("Iterable[Any]", items))


def _to_unit_vector(numbers: list[Any]) -> Vector:
    for number in numbers:
        if isinstance(number, bool) or not hasattr(number, "__float__"):
            raise ValueError(f"it gave a vector with a {type(number).__name__} in it")
    try:
        floats = list(map(float, numbers))
    except OverflowError:
        raise ValueError("it gave a vector with a number without bounds") from None
    largest = max(map(abs, floats))
    if not math.isfinite(sum(map(abs, floats))) and not all(map(math.isfinite, floats)):
        raise ValueError("it gave a vector with a number that is not finite")
    # Scaled by the largest first: squares of very large or very small numbers overflow.
    scaled = [number / largest for number in floats] if largest else floats
    length = math.sqrt(sum(map(mul, scaled, scaled))) or 1.0
    signs = "".join("1" if number > 0 else "0" for number in scaled)
    return Vector(array("f", [number / length for number in scaled]), int(signs, 2))


def find_nearest_vectors(
    target: Vector, vectors: Sequence[Vector], candidates: Iterable[int], limit: int
) -> list[tuple[int, float]]:
    """Return positions in ``vectors`` with their cosines, nearest first; approximate for very many."""
    positions = list(candidates)
    if len(positions) > _MAX_COMPARED:
        signs = target.signs
        distances = sorted([((signs ^ vectors[position].signs).bit_count(), position) for position in positions])
        positions = [position for _, position in distances[: max(_MAX_COMPARED, 4 * limit)]]
    cosines = [(sum(map(mul, target.numbers, vectors[position].numbers)), -position) for position in positions]
    return [(-position, cosine) for cosine, position in nlargest(limit, cosines)]


# Any failure of that function (exception, hang, wrong result) becomes a warning.

Embed = Callable[[list[str]], Any]

EMBED_TIMEOUT_SECONDS = 2.0
_BACKOFF_SECONDS = 30.0  # after it was slow, no search waits for it
_BATCH_SIZE = 64
_MAX_CACHED_QUERIES = 256
_MAX_UNUSED_VECTORS = 10_000  # beyond those in use: other conversations may use their tools again


class HostFunctionError(Exception):
    """The host's function failed. The message contains nothing from its exception."""


class Embeddings:
    """The vectors of texts, shared by versions of an index. Safe for several threads and loops.

    A sync function runs in a thread, one call at a time; an async one on the search's loop.
    """

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._is_async = is_async(embed)
        self._threads = BackgroundThreads("codemode-embed", 1)
        self._lock = create_fork_safe_lock()
        self._vectors: dict[bytes, Vector] = {}
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._dimension: int | None = None
        self._waiting: dict[bytes, str] = {}
        self._job: asyncio.Task[None] | None = None
        self._is_embedding = False
        self._problem: str | None = None
        self._disabled_until = 0.0
        register_fork_reset(self)

    def after_fork(self) -> None:
        """In a forked child: neither the thread nor the loop exists."""
        never_finalize_in_child(self._job)
        self._job, self._is_embedding = None, False

    def get_vectors_if_complete(self, digests: list[bytes]) -> list[Vector] | None:
        """Return the vectors of these texts, if all of them have one."""
        vectors = self._vectors
        try:
            return [vectors[digest] for digest in digests]
        except KeyError:
            return None

    async def embed_query(self, query: str) -> Vector:
        """Return the vector of a query. Raises `HostFunctionError`, at the latest after two seconds."""
        cached = self._queries.get(query)
        if cached is not None:
            return cached
        if time.monotonic() < self._disabled_until:
            raise HostFunctionError("embed was too slow a moment ago")
        try:
            [vector] = await await_or_raise_host_function_error(
                self._embed_texts([query]), "embed", EMBED_TIMEOUT_SECONDS
            )
        except HostFunctionTimeoutError:
            self._disabled_until = time.monotonic() + _BACKOFF_SECONDS
            raise
        with self._lock:
            self._queries[query] = vector
            if len(self._queries) > _MAX_CACHED_QUERIES:
                self._queries.popitem(last=False)
        return vector

    def start_embedding_and_get_problem(self, texts: Mapping[bytes, str]) -> str | None:
        """Start to embed the texts that have no vector, in the background. Returns the previous problem."""
        with self._lock:
            problem = self._problem
            if len(self._vectors) > 2 * len(texts) + _MAX_UNUSED_VECTORS:
                self._vectors = {digest: self._vectors[digest] for digest in texts if digest in self._vectors}
            missing = {digest: text for digest, text in texts.items() if digest not in self._vectors}
            if not missing:
                self._problem = None
                return None
            self._waiting = missing
        if not self._is_async:
            self._start_embedding_batch()
        elif self._job is None or self._job.done() or self._job.get_loop().is_closed():
            self._job = asyncio.get_running_loop().create_task(self._embed_missing_async())
        return problem

    def _start_embedding_batch(self) -> None:
        with self._lock:
            if self._is_embedding:
                return
            self._is_embedding = True
        self._threads.submit(self._embed_batch)

    def _embed_batch(self) -> None:
        batch = self._select_next_batch()
        try:
            result = self._embed(list(batch.values()))
            if inspect.isawaitable(result):
                self._is_async = True  # the next search continues on its loop
                close_coroutine(result)
                return
            self._store_vectors(batch, self._parse_vectors_and_set_dimension(result, len(batch)))
        except FAILURES as error:
            self._stop_embedding(format_host_failure(error, "embed"))
        finally:
            with self._lock:
                self._is_embedding = False
        if self._waiting:
            self._start_embedding_batch()  # as a new job, so that a query can run between two batches

    async def _embed_missing_async(self) -> None:
        while batch := self._select_next_batch():
            try:
                self._store_vectors(
                    batch,
                    await await_or_raise_host_function_error(self._embed_texts(list(batch.values())), "embed", None),
                )
            except HostFunctionError as error:
                self._stop_embedding(str(error))

    def _select_next_batch(self) -> dict[bytes, str]:
        with self._lock:
            items = zip(range(_BATCH_SIZE), self._waiting.items(), strict=False)
            return dict(item for _, item in items)

    def _store_vectors(self, batch: dict[bytes, str], vectors: list[Vector]) -> None:
        with self._lock:
            self._vectors.update(zip(batch, vectors, strict=True))
            self._problem = None
            for digest in batch:
                self._waiting.pop(digest, None)

    def _stop_embedding(self, problem: str) -> None:
        # The next search starts it again: the cause may be fixed.
        with self._lock:
            self._waiting = {}
            self._problem = problem

    async def _embed_texts(self, texts: list[str]) -> list[Vector]:
        result = self._embed(texts) if self._is_async else await self._threads.run(lambda: self._embed(texts))
        if inspect.isawaitable(result):
            self._is_async = True
            result = await result
        return await self._threads.run(lambda: self._parse_vectors_and_set_dimension(result, len(texts)))

    def _parse_vectors_and_set_dimension(self, result: Any, count: int) -> list[Vector]:
        try:
            vectors = parse_unit_vectors(result, count, self._dimension)
        except ValueError as error:
            raise HostFunctionError(f"embed cannot be used: {error}") from None
        with self._lock:
            if self._dimension is None:
                self._dimension = len(vectors[0].numbers)
        return vectors


def close_coroutine(awaitable: Any) -> None:
    close = getattr(awaitable, "close", None)
    if callable(close):
        close()  # an unawaited coroutine causes a warning


class HostFunctionTimeoutError(HostFunctionError):
    """The host's function timed out."""


def is_async(function: Any) -> bool:
    """Return whether calling a function returns a coroutine."""
    called: Any = getattr(function, "__call__", None)  # noqa: B004 - looked at, not called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def await_or_raise_host_function_error(work: Awaitable[Any], what: str, seconds: float | None) -> Any:
    """Await the result of a host function. Raises `HostFunctionError` if it fails or takes too long."""
    task = asyncio.ensure_future(_await_catching_failure(work))
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()  # a task that ignores cancellation is not awaited
    if not task.done():
        raise HostFunctionTimeoutError(f"{what} took longer than {seconds:g} seconds")
    value, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    if error is not None:
        raise HostFunctionError(format_host_failure(error, what)) from error
    return value


async def _await_catching_failure(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    # A `SystemExit` that leaves a task would end the loop.
    try:
        return await work, None
    except FAILURES as error:
        return None, error


def format_host_failure(error: BaseException, what: str) -> str:
    """Return a description of a host function's error without its text."""
    if isinstance(error, HostFunctionError):
        return str(error)
    return f"{what} raised {type(error).__name__}"
