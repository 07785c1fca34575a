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
from .answers import display_digest
from .records import ALL_TENANTS, Record, StoredPause, StoredRequest, Tenant
from .resumer import continuation_options, require_guard

if TYPE_CHECKING:
    from ..options.parts import ContinuationOptions
    from .interrupt_store import InterruptStore

_DIGESTS_KEY = "shown"

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
        framework: str,
        tenant: Tenant,
        app: str,
        labels: Mapping[str, str] | None,
        resume_with: ResumeWith | None,
        signed_with: ContinuationOptions | None = None,
    ) -> None:
        self.store = store
        self._signing_options = signed_with
        self.app = app
        self._framework = framework
        self._tenant: Tenant = tenant
        self._labels = dict(labels or {})
        self._resume_with = resume_with

    def resolve_tenant(self, tenant: str | None) -> str:
        """Return the tenant of a run. Raises `ValueError` where nobody has said it, or somebody otherwise."""
        if tenant is None and self._tenant is ALL_TENANTS:
            raise ValueError("these pauses are of all tenants: say whose this run is, with tenant=")
        if tenant is not None and self._tenant not in (ALL_TENANTS, tenant):
            raise ValueError(f"these pauses are of {self._tenant!r}, not of {tenant!r}")
        return cast("str", self._tenant) if tenant is None else tenant

    async def put(self, pause: StoredPause, tenant: str, labels: Mapping[str, str] | None) -> str:
        """Keep a pause and return the id of its record."""
        columns: dict[str, Any] = {"tenant": tenant, "app": self.app, "labels": {**self._labels, **(labels or {})}}
        return await self.store.put(pause, tool=pause.tool, source=pause.source, payload=pause.payload, **columns)

    def create_payload(self, state: Mapping[str, Any], requests: Iterable[PendingRequest], key: str) -> dict[str, Any]:
        """Return the payload of a record that keeps this and asks these requests; ``key`` names the pause."""
        payload = {FRAMEWORK_KEY: self._framework, **state}
        if self._signing_options is None:
            return payload
        payload[_DIGESTS_KEY] = display_digests(requests)
        return self._key_ring(self._signing_options).sign(
            payload, (self.app,), nonce=key, now_ms=now_ms(), max_age_ms=0
        )

    def read_payload(self, record: Record) -> dict[str, Any]:
        """Return what a record keeps. Raises `CodeModeProtocolError` for one that is not this agent's."""
        payload: Any = record.payload
        details = {"origin": "continuation", "not_resumable": True}
        if not isinstance(payload, dict) or cast("dict[str, Any]", payload).get(FRAMEWORK_KEY) != self._framework:
            raise CodeModeProtocolError(f"this record is none of {self._framework}", details=details)
        if record.app != self.app or self._tenant not in (ALL_TENANTS, record.tenant):
            raise CodeModeProtocolError("this record is another app's, or another tenant's", details=details)
        self._require_signed(record, cast("dict[str, Any]", payload))
        return cast("dict[str, Any]", payload)

    def _require_signed(self, record: Record, payload: Mapping[str, Any]) -> None:
        """Raise `CodeModeProtocolError` where the database shows other requests than this agent's pause has."""
        if self._signing_options is None:
            return
        try:
            # Whether it is too late the store knows.
            self._key_ring(self._signing_options).verify(payload, (self.app,), now_ms=None)
        except CodeModeProtocolError as error:
            details = {**error.details, "origin": "continuation", "not_resumable": True}
            raise CodeModeProtocolError(f"the payload of the record: {error.message}", details=details) from None
        require_displayed(record.requests, payload[_DIGESTS_KEY])

    def _key_ring(self, options: ContinuationOptions) -> KeyRing:
        keys = options.keys if options.keys is not None else get_process_keys()
        return KeyRing(keys, purpose="agent record", binding=options.conversation_id)

    def require_guard(self, tool: Any, options_name: str, *, unless_journaled: bool = False) -> None:
        """Raise `ValueError` where a tool keeps its claims elsewhere than ``store.guard``.

        ``whose`` names its options. ``unless_journaled``: one that has a journal knows which calls were made.
        """
        continuation = continuation_options(tool)
        if not (unless_journaled and continuation is not None and continuation.journal is not None):
            require_guard(self.store, tool, options_name)

    def create_pause(
        self,
        requests: Iterable[PendingRequest],
        state: Mapping[str, Any],
        *,
        key: str,
        expires_at_ms: int,
        tool: str,
        outer_tool_call_id: str,
        tool_forms: Mapping[str, ToolForm],
        source: str | None,
    ) -> StoredPause:
        """Return the pause of an agent's run: what it asks, and ``kept``, plain JSON with which it is resumed.

        ``key`` tells it from every other pause. ``tool`` is the tool that paused, ``forms`` are of those asked about,
        ``source`` is the program or programs.
        """
        requests = tuple(requests)
        payload = self.create_payload({**state, "key": key, "expiresAtMs": expires_at_ms}, requests, key)
        pause = make_agent_interrupt(
            requests,
            framework=self._framework,
            key=key,
            outer_tool_call_id=outer_tool_call_id,
            expires_at_ms=expires_at_ms,
        )
        return to_stored_pause(pause, tool=ToolForms(tool, tool_forms), source=source, payload=payload)

    def resume(
        self, payload: Mapping[str, Any], answers: Mapping[str, Any], *, is_framework_durable: bool = False
    ) -> AbstractAsyncContextManager[AgentRun]:
        """Hold the resumed run of a pause, of which `kept` returned this, while the block runs. See `agent_run`."""
        guard: Any = self.store.guard
        return hold_agent_run(
            guard, payload["key"], answers, payload["expiresAtMs"], is_framework_durable=is_framework_durable
        )

    @staticmethod
    def require_unchanged(record: Record, requests: Iterable[PendingRequest]) -> None:
        """Raise `CodeModeProtocolError` unless a record shows what is asked."""
        require_displayed(record.requests, display_digests(requests))

    @staticmethod
    def join_programs(programs: list[str]) -> tuple[str | None, list[int]]:
        """Return programs as one text, and how many of its lines come before each."""
        return join_program_texts(programs)

    async def get_waiting_pause(self, record: Record) -> StoredPause:
        """Return the pause of a record that answers are missing of: nothing was run with those there are."""
        interrupt_ids = record.versions[-1].interrupt_ids
        pause = await self.store.get(interrupt_ids[0], tenant=record.tenant) if interrupt_ids else None
        if pause is None:
            raise CodeModeProtocolError("the agent has gone on without these answers", details={"superseded": True})
        return to_stored_pause(pause, waits_for_all=True)

    async def get_resume_settings(self, record: Record) -> dict[str, Any]:
        """Return what a record goes on with."""
        settings: Any = {} if self._resume_with is None else self._resume_with(record)
        return dict(await settings if inspect.isawaitable(settings) else settings)


def display_digests(requests: Iterable[StoredRequest | PendingRequest]) -> dict[str, str]:
    """Return the digests of what people are shown, by request id."""
    return {request.interrupt_id: display_digest(request) for request in requests}


def require_displayed(requests: Iterable[StoredRequest], expected: Mapping[str, str]) -> None:
    """Raise `CodeModeProtocolError` unless the requests show what is asked: digests by request id."""
    displayed = display_digests(requests)
    for interrupt_id, digest in expected.items():
        if displayed.get(interrupt_id) != digest:
            raise CodeModeProtocolError(
                f"the request {interrupt_id!r} was changed in the database: it does not show what the agent asks",
                details={"origin": "continuation", "not_resumable": True},
            )


def to_stored_pause(pause: Interrupt, **columns: Any) -> StoredPause:
    """Return a pause with what its record is to say of it."""
    fields = {"requests": pause.requests, "outer_tool_call_id": pause.outer_tool_call_id}
    return StoredPause(**fields, continuation=pause.continuation, **columns)


def encode_outcome(outcome: Any) -> dict[str, Any]:
    """Write what a run came to, an output or a `StoredPause`, for whoever asks again or takes over."""
    if not isinstance(outcome, StoredPause):
        return {"output": outcome}
    forms: ToolForms = outcome.tool
    catalog = {name: asdict(form) for name, form in forms.catalog.items()}
    tool = {"name": forms.name, "catalog": catalog}
    return {"pause": outcome.to_dict(), "tool": tool, "source": outcome.source, "payload": outcome.payload}


def decode_outcome(outcome: Mapping[str, Any]) -> Any:
    """Read what `encode_outcome` wrote."""
    if "output" in outcome:
        return outcome["output"]
    catalog = {name: ToolForm(**form) for name, form in outcome["tool"]["catalog"].items()}
    forms = ToolForms(outcome["tool"]["name"], catalog)
    return to_stored_pause(
        Interrupt.from_dict(outcome["pause"]), tool=forms, source=outcome["source"], payload=outcome["payload"]
    )


def join_program_texts(programs: list[str]) -> tuple[str | None, list[int]]:
    """Return programs as one text, and how many lines of it stand before each."""
    if len(programs) < 2:
        return (programs[0] or None if programs else None), [0] * len(programs)
    text, first_lines = "", list[int]()
    for number, program in enumerate(programs, 1):
        text += f"// program {number} of {len(programs)}\n"
        first_lines.append(text.count("\n"))
        text += f"{program}\n"
    return text, first_lines


# The programs of a run have guards of their own, so what they have done is not done again. What the agent does after
# them, nobody could tell once its host is dead: before that it says so.

_log = logging.getLogger("codemode.stores")


class AgentRun:
    """A resumed run. With ``is_finished`` it came to ``outcome`` before, and nothing is to run.

    ``is_beyond``: the agent has done, or may have done, what no guard knows of.
    """

    def __init__(self, guard: ResumeGuard, claim: Claim, *, is_framework_durable: bool) -> None:
        self.recorded_outcome: Mapping[str, Any] | None = None
        self.is_unguarded = False
        self._guard = guard
        self._claim = claim
        self._unguarded_claim = Claim(f"{claim.key}:beyond", "beyond", claim.expires_at_ms)
        self._handover_claim = Claim(f"{claim.key}:handed", "handed", claim.expires_at_ms)
        self._is_framework_durable = is_framework_durable
        self._held_keys: set[str] = set()

    @property
    def is_finished(self) -> bool:
        """True when the run came to its outcome before."""
        return self.recorded_outcome is not None

    @property
    def outcome(self) -> Any:
        """The output of a finished run, or the `StoredPause` in which it waits."""
        return decode_outcome(self.recorded_outcome or {"output": None})

    async def finish(self, outcome: Any) -> Any:
        """Keep an output, plain JSON, or the `StoredPause` in which the run waits, and return what holds."""
        return decode_outcome(await self.record_outcome(encode_outcome(outcome)))

    async def claim(self) -> None:
        """Become the one that goes on. Raises `CodeModeProtocolError` where somebody died over more than programs."""
        existing = await self._guard.claim(self._claim)
        if isinstance(existing, str):
            self.recorded_outcome = decode_json(existing)
            return
        self._held_keys.add(self._claim.key)
        if self._is_framework_durable:
            return
        if existing is None:
            # Of a run that was lost, and is run again because somebody said so.
            await self._guard.release(self._unguarded_claim.key)
        elif await self._guard.claim(self._unguarded_claim) is None:
            self._held_keys.add(self._unguarded_claim.key)
        else:
            self._held_keys.clear()
            raise self._unknown_outcome_error()

    async def mark_unguarded(self) -> None:
        """Say that the agent does what no guard knows of. Raises `CodeModeProtocolError` where somebody else has."""
        if self._unguarded_claim.key not in self._held_keys:
            if await self._guard.claim(self._unguarded_claim) is not None:
                raise self._unknown_outcome_error()
            self._held_keys.add(self._unguarded_claim.key)
        self.is_unguarded = True

    async def is_handed_over(self) -> bool:
        """Tell whether a framework that keeps all it does was given these answers before."""
        if isinstance(await self._guard.claim(self._handover_claim), str):
            return True
        self._held_keys.add(self._handover_claim.key)
        return False

    async def mark_handed_over(self) -> None:
        """Say that the framework is given them, for good."""
        await self._guard.record(self._handover_claim.key, '"handed"')

    async def record_outcome(self, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep what it came to, a JSON object, and return what stands."""
        text = encode_json(dict(outcome), what="what the agent came to")
        existing = await self._guard.record(self._claim.key, text)
        return outcome if not isinstance(existing, str) or existing == text else decode_json(existing)

    async def release(self) -> None:
        """Say that nothing was done that another one would do again."""
        for key in self._held_keys:
            await self._guard.release(key)
        self._held_keys.clear()

    async def renew(self) -> None:
        """Keep it until cancelled."""
        renew: Any = getattr(self._guard, "renew", None)
        while renew is not None:
            await asyncio.sleep(RENEW_SECONDS)
            for key in tuple(self._held_keys):
                try:
                    await renew(key)
                except Exception:  # noqa: BLE001 - a guard is host code, and may work again the next time
                    _log.warning("the claim of an agent's run could not be renewed", exc_info=True)

    def _unknown_outcome_error(self) -> CodeModeProtocolError:
        message = (
            "nobody can say how far the agent has come: its host died, or stood still, once its programs had ended"
        )
        return CodeModeProtocolError(message, details={"origin": "continuation"})


@asynccontextmanager
async def hold_agent_run(
    guard: ResumeGuard, key: str, answers: Mapping[str, Any], expires_at_ms: int, *, is_framework_durable: bool = False
) -> AsyncGenerator[AgentRun]:
    """Claim the resumed run of an agent while the block runs. ``key`` names its pause, ``answers`` its answers.

    If the block fails before `AgentRun.mark_unguarded`, the run can be tried again. ``is_framework_durable``: the
    framework itself persists what was done. Raises `CodeModeProtocolError` when other answers were given before.
    """
    digest = hashlib.sha256(canonical_json(dict(answers)).encode()).hexdigest()
    run = AgentRun(guard, Claim(key, digest, expires_at_ms), is_framework_durable=is_framework_durable)
    await run.claim()
    renewal = asyncio.get_running_loop().create_task(run.renew())
    try:
        yield run
    except BaseException:
        if not run.is_unguarded:
            await run.release()
        raise
    finally:
        renewal.cancel()
        await asyncio.wait([renewal])
