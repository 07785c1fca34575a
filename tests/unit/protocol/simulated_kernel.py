"""The guest side of an invocation without an engine: runs small generated programs and speaks the wire messages.

It follows the kernel's rules (one delivery a turn, refusals by the limits, what counts as observed) and knows nothing
of the host's side, so that the two can be held against each other.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from codemode.protocol.messages import (
    CallRequested,
    DeliverError,
    DeliverValue,
    EngineFailed,
    ProgramReturned,
    ProgramThrew,
    TurnEnded,
    WorkerMessage,
)
from codemode.protocol.settings import InvocationSettings

# --- programs ---


@dataclass(frozen=True, slots=True)
class Call:
    """``await tools.<name>(input)``."""

    name: str
    input: Any = 0


@dataclass(frozen=True, slots=True)
class Sequence_:
    """One after the other; the list of their values."""

    parts: tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class All:
    """``Promise.all``."""

    parts: tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class AllSettled:
    """``Promise.allSettled``: a failure becomes the text "failed"."""

    parts: tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class Race:
    """``Promise.race``."""

    parts: tuple[Program, ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """``try { return await body } catch { return await fallback }``."""

    body: Program
    fallback: Program


@dataclass(frozen=True, slots=True)
class Forget:
    """A call that is made and whose promise nobody looks at."""

    call: Call


@dataclass(frozen=True, slots=True)
class Detach:
    """Work that is started, observed inside, and not awaited."""

    body: Program


@dataclass(frozen=True, slots=True)
class Throw:
    """``throw new Error(message)``."""

    message: str


@dataclass(frozen=True, slots=True)
class Never:
    """A promise that nobody resolves."""


Program: TypeAlias = Call | Sequence_ | All | AllSettled | Race | Retry | Forget | Detach | Throw | Never


def sequence(*parts: Program) -> Sequence_:
    return Sequence_(parts)


def all_of(*parts: Program) -> All:
    return All(parts)


class GuestError(Exception):
    """What the guest's code throws; ``request`` or ``limit`` say that the kernel made it."""

    def __init__(self, name: str, message: str, *, request: int | None = None, limit: str | None = None) -> None:
        super().__init__(message)
        self.name, self.message, self.request, self.limit = name, message, request, limit


# --- promises and their jobs ---


class Promise:
    """Settled once; who waits for it goes on in a job of its own."""

    def __init__(self, jobs: deque[Callable[[], None]]) -> None:
        self._jobs = jobs
        self._reactions: list[Callable[[], None]] = []
        self.is_settled = False
        self.value: Any = None
        self.error: GuestError | None = None
        self.is_observed = False

    def settle(self, value: Any = None, error: GuestError | None = None) -> None:
        if not self.is_settled:
            self.is_settled, self.value, self.error = True, value, error
            self._jobs.extend(self._reactions)

    def react(self, job: Callable[[], None]) -> None:
        self.is_observed = True
        (self._jobs if self.is_settled else self._reactions).append(job)

    def __await__(self) -> Generator[Promise, None, Any]:
        yield self
        if self.error is not None:
            raise self.error
        return self.value


class SimulatedKernel:
    """Runs one program. ``run`` and ``deliver`` each return the messages of one turn."""

    def __init__(self, program: Program, settings: InvocationSettings) -> None:
        self.finished = False
        self.issued: list[CallRequested] = []
        self.issued_in_last_turn: set[int] = set()
        self.refused: list[Call] = []
        self.delivered: list[int] = []
        self.peak_in_flight = 0
        self._program = program
        self._settings = settings
        self._jobs: deque[Callable[[], None]] = deque()
        self._promises: dict[int, Promise] = {}
        self._lines: list[WorkerMessage] = []
        self._in_flight = 0

    def run(self) -> list[WorkerMessage]:
        main = self._spawn(self._evaluate(self._program))
        main.react(lambda: self._end(main))
        return self._turn()

    def deliver(self, message: DeliverValue | DeliverError) -> list[WorkerMessage]:
        assert not self.finished
        if message.id not in self._promises:
            # A replay sends outcomes ahead. The real kernel knows no such request either, and its worker ends.
            self.finished = True
            return [EngineFailed("kernel-error: unknown request", "request")]
        assert message.id not in self.delivered, "an outcome was delivered twice"
        self.delivered.append(message.id)
        self._in_flight -= 1
        promise = self._promises[message.id]
        if isinstance(message, DeliverValue):
            promise.settle(None if message.value_json is None else json.loads(message.value_json))
        else:
            promise.settle(error=GuestError(message.name, message.message, request=message.id))
        return self._turn()

    # -- turns

    def _turn(self) -> list[WorkerMessage]:
        before = len(self.issued)
        while self._jobs and not self.finished:
            self._jobs.popleft()()
        self.issued_in_last_turn = {request.id for request in self.issued[before:]}
        if not self.finished:
            self._lines.append(TurnEnded(self._in_flight))
        lines, self._lines = self._lines, []
        return lines

    def _end(self, main: Promise) -> None:
        self.finished = True
        error = main.error
        if error is None:
            unobserved = tuple(n for n, promise in self._promises.items() if not promise.is_observed)
            self._lines.append(ProgramReturned(json.dumps(main.value), False, None, unobserved))
        else:
            self._lines.append(ProgramThrew(error.name, error.message, "", "", "program", error.request, error.limit))

    def _spawn(self, work: Coroutine[Any, None, Any]) -> Promise:
        """Run like an async function: at once up to its first await."""
        outcome = Promise(self._jobs)

        def step() -> None:
            try:
                awaited = work.send(None)
            except StopIteration as stop:
                outcome.settle(stop.value)
            except GuestError as error:
                outcome.settle(error=error)
            else:
                awaited.react(step)

        step()
        return outcome

    # -- the program

    async def _evaluate(self, program: Program) -> Any:
        match program:
            case Call():
                return await self._request(program)
            case Sequence_(parts):
                return [await self._evaluate(part) for part in parts]
            case All(parts):
                return await self._all([self._spawn(self._evaluate(part)) for part in parts])
            case AllSettled(parts):
                promises = [self._spawn(self._settled(part)) for part in parts]
                return await self._all(promises)
            case Race(parts):
                return await self._race([self._spawn(self._evaluate(part)) for part in parts])
            case Retry(body, fallback):
                try:
                    return await self._evaluate(body)
                except GuestError:
                    return await self._evaluate(fallback)
            case Forget(call):
                self._request(call)
            case Detach(body):
                self._spawn(self._evaluate(body))
            case Throw(message):
                raise GuestError("Error", message)
            case Never():
                await Promise(self._jobs)
        return None

    async def _settled(self, program: Program) -> Any:
        try:
            return await self._evaluate(program)
        except GuestError:
            return "failed"

    def _all(self, promises: Sequence[Promise]) -> Promise:
        result = Promise(self._jobs)
        missing = len(promises)

        def look(promise: Promise) -> None:
            nonlocal missing
            missing -= 1
            if promise.error is not None:
                result.settle(error=promise.error)
            elif missing == 0:
                result.settle([each.value for each in promises])

        for promise in promises:
            promise.react(lambda promise=promise: look(promise))
        if not promises:
            result.settle([])
        return result

    def _race(self, promises: Sequence[Promise]) -> Promise:
        result = Promise(self._jobs)
        for promise in promises:
            promise.react(lambda promise=promise: result.settle(promise.value, promise.error))
        return result

    def _request(self, call: Call) -> Promise:
        promise = Promise(self._jobs)
        limit = self._exceeded_limit()
        if limit is not None:
            self.refused.append(call)
            promise.settle(error=GuestError("CodeModeBridgeLimitError", limit, limit=limit))
            return promise
        self._in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self._in_flight)
        request = CallRequested(len(self.issued) + 1, "tool", call.name, json.dumps(call.input), None)
        self.issued.append(request)
        self._promises[request.id] = promise
        self._lines.append(request)
        return promise

    def _exceeded_limit(self) -> str | None:
        if len(self.issued) >= self._settings.limits.max_bridge_requests:
            return "max_bridge_requests"
        limits = self._settings.limits
        if limits.in_flight_limit == "fail" and self._in_flight >= limits.max_in_flight_bridge_requests:
            return "max_in_flight_bridge_requests"
        return None
