"""Stored pauses of agents, and resuming one in one process at a time."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..continuations.guard import RENEW_SECONDS, Claim, ResumeGuard
from ..continuations.keys import get_process_keys
from ..continuations.signing import KeyRing
from ..data.json_values import canonical_json, decode_json, encode_json
from ..errors import CodeModeProtocolError
from ..host.clock import now_ms
from ..interrupts.interrupt import FRAMEWORK_KEY, Interrupt, PendingRequest, make_agent_interrupt
from .answers import shown
from .records import ALL_TENANTS, Record, StoredPause, StoredRequest, Tenant
from .resumer import continuation_of, require_guard

if TYPE_CHECKING:
    from ..options.parts import ContinuationOptions
    from .interrupt_store import InterruptStore

_SHOWN = "shown"

# Knows no framework: a plugin says what goes on, and with what.

ResumeWith: TypeAlias = Callable[[Record], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True)
class ToolForm:
    """What a page needs of one tool, under the names by which a store asks for it."""

    input_json_schema: Any
    description: str = ""
    annotations: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ToolForms:
    """The tools that a pause asks about, as a store takes them; ``name`` is the tool that paused."""

    name: str
    catalog: Mapping[str, ToolForm]


class AgentRecords:
    """The records of one agent in a store. ``kept_by`` is its framework, ``resume_with`` what a record goes on with.

    With the keys of ``signed_with`` the payload of a record is signed, with what its requests show, so that changes in
    the database are found before anything runs. Without, the plugin compares requests with what the framework keeps.
    """

    def __init__(
        self,
        store: InterruptStore,
        *,
        kept_by: str,
        tenant: Tenant,
        app: str,
        labels: Mapping[str, str] | None,
        resume_with: ResumeWith | None,
        signed_with: ContinuationOptions | None = None,
    ) -> None:
        self.store = store
        self._signed_with = signed_with
        self.app = app
        self._kept_by = kept_by
        self._tenant: Tenant = tenant
        self._labels = dict(labels or {})
        self._resume_with = resume_with

    def whose(self, tenant: str | None) -> str:
        """Return the tenant of a run. Raises `ValueError` where nobody has said it, or somebody otherwise."""
        if tenant is None and self._tenant is ALL_TENANTS:
            raise ValueError("these pauses are of all tenants: say whose this run is, with tenant=")
        if tenant is not None and self._tenant not in (ALL_TENANTS, tenant):
            raise ValueError(f"these pauses are of {self._tenant!r}, not of {tenant!r}")
        return cast("str", self._tenant) if tenant is None else tenant

    async def put(self, pause: StoredPause, tenant: str, labels: Mapping[str, str] | None) -> str:
        """Keep a pause and return the id of its record."""
        own: dict[str, Any] = {"tenant": tenant, "app": self.app, "labels": {**self._labels, **(labels or {})}}
        return await self.store.put(pause, tool=pause.tool, source=pause.source, payload=pause.payload, **own)

    def payload(self, kept: Mapping[str, Any], requests: Iterable[PendingRequest], key: str) -> dict[str, Any]:
        """Return the payload of a record that keeps this and asks these requests; ``key`` names the pause."""
        payload = {FRAMEWORK_KEY: self._kept_by, **kept}
        if self._signed_with is None:
            return payload
        payload[_SHOWN] = shown_digests(requests)
        return self._key_ring(self._signed_with).sign(payload, (self.app,), nonce=key, now_ms=now_ms(), max_age_ms=0)

    def kept(self, record: Record) -> dict[str, Any]:
        """Return what a record keeps. Raises `CodeModeProtocolError` for one that is not this agent's."""
        payload: Any = record.payload
        refused = {"origin": "continuation", "not_resumable": True}
        if not isinstance(payload, dict) or cast("dict[str, Any]", payload).get(FRAMEWORK_KEY) != self._kept_by:
            raise CodeModeProtocolError(f"this record is none of {self._kept_by}", details=refused)
        if record.app != self.app or self._tenant not in (ALL_TENANTS, record.tenant):
            raise CodeModeProtocolError("this record is another app's, or another tenant's", details=refused)
        self._require_unchanged(record, cast("dict[str, Any]", payload))
        return cast("dict[str, Any]", payload)

    def _require_unchanged(self, record: Record, payload: Mapping[str, Any]) -> None:
        """Raise `CodeModeProtocolError` where the database shows other requests than this agent's pause has."""
        if self._signed_with is None:
            return
        try:
            # Whether it is too late the store knows.
            self._key_ring(self._signed_with).verify(payload, (self.app,), now_ms=None)
        except CodeModeProtocolError as error:
            details = {**error.details, "origin": "continuation", "not_resumable": True}
            raise CodeModeProtocolError(f"the payload of the record: {error.message}", details=details) from None
        require_shown(record.requests, payload[_SHOWN])

    def _key_ring(self, options: ContinuationOptions) -> KeyRing:
        keys = options.keys if options.keys is not None else get_process_keys()
        return KeyRing(keys, purpose="agent record", binding=options.conversation_id)

    def require_guard(self, tool: Any, whose: str, *, unless_journaled: bool = False) -> None:
        """Raise `ValueError` where a tool keeps its claims elsewhere than ``store.guard``.

        ``whose`` names its options. ``unless_journaled``: one that has a journal knows which calls were made.
        """
        continuation = continuation_of(tool)
        if not (unless_journaled and continuation is not None and continuation.journal is not None):
            require_guard(self.store, tool, whose)

    def pause(
        self,
        requests: Iterable[PendingRequest],
        kept: Mapping[str, Any],
        *,
        key: str,
        expires_at_ms: int,
        tool: str,
        outer_tool_call_id: str,
        forms: Mapping[str, ToolForm],
        source: str | None,
    ) -> StoredPause:
        """Return the pause of an agent's run: what it asks, and ``kept``, plain JSON with which it is resumed.

        ``key`` tells it from every other pause. ``tool`` is the tool that paused, ``forms`` are of those asked about,
        ``source`` is the program or programs.
        """
        requests = tuple(requests)
        payload = self.payload({**kept, "key": key, "expiresAtMs": expires_at_ms}, requests, key)
        pause = make_agent_interrupt(
            requests,
            framework=self._kept_by,
            key=key,
            outer_tool_call_id=outer_tool_call_id,
            expires_at_ms=expires_at_ms,
        )
        return stored_pause(pause, tool=ToolForms(tool, forms), source=source, payload=payload)

    def resume(
        self, kept: Mapping[str, Any], answers: Mapping[str, Any], *, is_kept_elsewhere: bool = False
    ) -> AbstractAsyncContextManager[AgentRun]:
        """Hold the resumed run of a pause, of which `kept` returned this, while the block runs. See `agent_run`."""
        guard: Any = self.store.guard
        return agent_run(guard, kept["key"], answers, kept["expiresAtMs"], is_kept_elsewhere=is_kept_elsewhere)

    @staticmethod
    def require_unchanged(record: Record, asked: Iterable[PendingRequest]) -> None:
        """Raise `CodeModeProtocolError` unless a record shows what is asked."""
        require_shown(record.requests, shown_digests(asked))

    @staticmethod
    def join_programs(programs: list[str]) -> tuple[str | None, list[int]]:
        """Return programs as one text, and how many of its lines come before each."""
        return joined_programs(programs)

    async def still_waiting(self, record: Record) -> StoredPause:
        """Return the pause of a record that answers are missing of: nothing was run with those there are."""
        asked = record.versions[-1].interrupt_ids
        pause = await self.store.get(asked[0], tenant=record.tenant) if asked else None
        if pause is None:
            raise CodeModeProtocolError("the agent has gone on without these answers", details={"superseded": True})
        return stored_pause(pause, waits_for_all=True)

    async def settings_for(self, record: Record) -> dict[str, Any]:
        """Return what a record goes on with."""
        settings: Any = {} if self._resume_with is None else self._resume_with(record)
        return dict(await settings if inspect.isawaitable(settings) else settings)


def shown_digests(requests: Iterable[StoredRequest | PendingRequest]) -> dict[str, str]:
    """Return the digests of what people are shown, by request id."""
    return {one.interrupt_id: shown(one) for one in requests}


def require_shown(requests: Iterable[StoredRequest], asked: Mapping[str, str]) -> None:
    """Raise `CodeModeProtocolError` unless the requests show what is asked: digests by request id."""
    found = shown_digests(requests)
    for interrupt_id, digest in asked.items():
        if found.get(interrupt_id) != digest:
            raise CodeModeProtocolError(
                f"the request {interrupt_id!r} was changed in the database: it does not show what the agent asks",
                details={"origin": "continuation", "not_resumable": True},
            )


def stored_pause(pause: Interrupt, **more: Any) -> StoredPause:
    """Return a pause with what its record is to say of it."""
    own = {"requests": pause.requests, "outer_tool_call_id": pause.outer_tool_call_id}
    return StoredPause(**own, continuation=pause.continuation, **more)


def written_end(end: Any) -> dict[str, Any]:
    """Write what a run came to, an output or a `StoredPause`, for whoever asks again or takes over."""
    if not isinstance(end, StoredPause):
        return {"output": end}
    forms: ToolForms = end.tool
    catalog = {name: asdict(form) for name, form in forms.catalog.items()}
    tool = {"name": forms.name, "catalog": catalog}
    return {"pause": end.to_dict(), "tool": tool, "source": end.source, "payload": end.payload}


def read_end(end: Mapping[str, Any]) -> Any:
    """Read what `written_end` wrote."""
    if "output" in end:
        return end["output"]
    catalog = {name: ToolForm(**form) for name, form in end["tool"]["catalog"].items()}
    forms = ToolForms(end["tool"]["name"], catalog)
    return stored_pause(Interrupt.from_dict(end["pause"]), tool=forms, source=end["source"], payload=end["payload"])


def joined_programs(programs: list[str]) -> tuple[str | None, list[int]]:
    """Return programs as one text, and how many lines of it stand before each."""
    if len(programs) < 2:
        return (programs[0] or None if programs else None), [0] * len(programs)
    text, first_lines = "", list[int]()
    for number, one in enumerate(programs, 1):
        text += f"// program {number} of {len(programs)}\n"
        first_lines.append(text.count("\n"))
        text += f"{one}\n"
    return text, first_lines


# The programs of a run have guards of their own, so what they have done is not done again. What the agent does after
# them, nobody could tell once its host is dead: before that it says so.

_log = logging.getLogger("codemode.stores")


class AgentRun:
    """A resumed run. With ``is_finished`` it came to ``outcome`` before, and nothing is to run.

    ``is_beyond``: the agent has done, or may have done, what no guard knows of.
    """

    def __init__(self, guard: ResumeGuard, claim: Claim, *, is_kept_elsewhere: bool) -> None:
        self.known: Mapping[str, Any] | None = None
        self.is_beyond = False
        self._guard = guard
        self._claim = claim
        self._beyond = Claim(f"{claim.key}:beyond", "beyond", claim.expires_at_ms)
        self._handed = Claim(f"{claim.key}:handed", "handed", claim.expires_at_ms)
        self._is_kept_elsewhere = is_kept_elsewhere
        self._held: set[str] = set()

    @property
    def is_finished(self) -> bool:
        """True when the run came to its outcome before."""
        return self.known is not None

    @property
    def outcome(self) -> Any:
        """The output of a finished run, or the `StoredPause` in which it waits."""
        return read_end(self.known or {"output": None})

    async def finish(self, reached: Any) -> Any:
        """Keep an output, plain JSON, or the `StoredPause` in which the run waits, and return what holds."""
        return read_end(await self.came_to(written_end(reached)))

    async def take(self) -> None:
        """Become the one that goes on. Raises `CodeModeProtocolError` where somebody died over more than programs."""
        standing = await self._guard.claim(self._claim)
        if isinstance(standing, str):
            self.known = decode_json(standing)
            return
        self._held.add(self._claim.key)
        if self._is_kept_elsewhere:
            return
        if standing is None:
            # Of a run that was lost, and is run again because somebody said so.
            await self._guard.release(self._beyond.key)
        elif await self._guard.claim(self._beyond) is None:
            self._held.add(self._beyond.key)
        else:
            self._held.clear()
            raise self._cannot_say()

    async def goes_beyond(self) -> None:
        """Say that the agent does what no guard knows of. Raises `CodeModeProtocolError` where somebody else has."""
        if self._beyond.key not in self._held:
            if await self._guard.claim(self._beyond) is not None:
                raise self._cannot_say()
            self._held.add(self._beyond.key)
        self.is_beyond = True

    async def was_handed_over(self) -> bool:
        """Tell whether a framework that keeps all it does was given these answers before."""
        if isinstance(await self._guard.claim(self._handed), str):
            return True
        self._held.add(self._handed.key)
        return False

    async def hands_over(self) -> None:
        """Say that the framework is given them, for good."""
        await self._guard.record(self._handed.key, '"handed"')

    async def came_to(self, end: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep what it came to, a JSON object, and return what stands."""
        text = encode_json(dict(end), what="what the agent came to")
        standing = await self._guard.record(self._claim.key, text)
        return end if not isinstance(standing, str) or standing == text else decode_json(standing)

    async def gives_up(self) -> None:
        """Say that nothing was done that another one would do again."""
        for key in self._held:
            await self._guard.release(key)
        self._held.clear()

    async def renew(self) -> None:
        """Keep it until cancelled."""
        renew: Any = getattr(self._guard, "renew", None)
        while renew is not None:
            await asyncio.sleep(RENEW_SECONDS)
            for key in tuple(self._held):
                try:
                    await renew(key)
                except Exception:  # noqa: BLE001 - a guard is host code, and may work again the next time
                    _log.warning("the claim of an agent's run could not be renewed", exc_info=True)

    def _cannot_say(self) -> CodeModeProtocolError:
        said = "nobody can say how far the agent has come: its host died, or stood still, once its programs had ended"
        return CodeModeProtocolError(said, details={"origin": "continuation"})


@asynccontextmanager
async def agent_run(
    guard: ResumeGuard, key: str, answers: Mapping[str, Any], expires_at_ms: int, *, is_kept_elsewhere: bool = False
) -> AsyncGenerator[AgentRun]:
    """Hold the run of an agent while the block runs. ``key`` names its pause, which was answered so.

    Where the block fails before it `AgentRun.goes_beyond`, the same may be tried again. ``is_kept_elsewhere``: the
    framework itself knows what was done, whoever dies. Raises `CodeModeProtocolError` for other answers than those that
    were given already.
    """
    digest = hashlib.sha256(canonical_json(dict(answers)).encode()).hexdigest()
    run = AgentRun(guard, Claim(key, digest, expires_at_ms), is_kept_elsewhere=is_kept_elsewhere)
    await run.take()
    renewing = asyncio.get_running_loop().create_task(run.renew())
    try:
        yield run
    except BaseException:
        if not run.is_beyond:
            await run.gives_up()
        raise
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
