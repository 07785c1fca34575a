"""Store paused agent runs, and resume each in one process at a time."""

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
from ..continuations.keys import get_or_create_process_keys
from ..continuations.signing import KeyRing
from ..data.json_values import decode_json, encode_canonical_json, encode_json
from ..errors import CodeModeProtocolError
from ..host.clock import now_ms
from ..interrupts.interrupt import FRAMEWORK_KEY, Interrupt, PendingRequest, make_agent_interrupt
from .answers import compute_display_digest
from .records import ALL_TENANTS, Record, StoredPause, StoredRequest, Tenant
from .resumer import get_continuation_options, require_tool_uses_store_guard

if TYPE_CHECKING:
    from ..options.parts import ContinuationOptions
    from .interrupt_store import InterruptStore

_DIGESTS_KEY = "shown"

# Independent of frameworks: a plugin supplies what is resumed.

ResumeWith: TypeAlias = Callable[[Record], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True)
class ToolForm:
    """The schema, description and annotations of a tool, under the attribute names that a store reads."""

    input_json_schema: Any
    description: str = ""
    annotations: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ToolForms:
    """The tools that a pause asks about, for a store; ``name`` is the tool that paused."""

    name: str
    catalog: Mapping[str, ToolForm]


class AgentRecords:
    """The records of one agent in a store. ``framework`` names its framework.

    ``resume_with`` returns the settings with which a record is resumed. ``signed_with`` holds keys that sign the
    payload of a record with the digests of its requests, so that changes in the database are found before anything
    runs. Without keys the plugin compares the requests with the framework's own state.
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
        """Return the tenant of a run. Raises `ValueError` for a missing or different tenant."""
        if tenant is None and self._tenant is ALL_TENANTS:
            raise ValueError("these records cover all tenants: pass the run's tenant with tenant=")
        if tenant is not None and self._tenant not in (ALL_TENANTS, tenant):
            raise ValueError(f"these records belong to tenant {self._tenant!r}, not to {tenant!r}")
        return cast("str", self._tenant) if tenant is None else tenant

    async def put(self, pause: StoredPause, tenant: str, labels: Mapping[str, str] | None) -> str:
        """Store a pause and return the id of its record."""
        columns: dict[str, Any] = {"tenant": tenant, "app": self.app, "labels": {**self._labels, **(labels or {})}}
        return await self.store.put(pause, tool=pause.tool, source=pause.source, payload=pause.payload, **columns)

    def create_payload(self, state: Mapping[str, Any], requests: Iterable[PendingRequest], key: str) -> dict[str, Any]:
        """Return the payload of a record with this state and these requests; ``key`` names the pause."""
        payload = {FRAMEWORK_KEY: self._framework, **state}
        if self._signing_options is None:
            return payload
        payload[_DIGESTS_KEY] = compute_display_digests(requests)
        return self._create_key_ring(self._signing_options).sign(
            payload, (self.app,), nonce=key, now_ms=now_ms(), max_age_ms=0
        )

    def read_payload(self, record: Record) -> dict[str, Any]:
        """Return the payload of a record. Raises `CodeModeProtocolError` for a record of another agent."""
        payload: Any = record.payload
        details = {"origin": "continuation", "not_resumable": True}
        if not isinstance(payload, dict) or cast("dict[str, Any]", payload).get(FRAMEWORK_KEY) != self._framework:
            raise CodeModeProtocolError(f"this record does not belong to {self._framework}", details=details)
        if record.app != self.app or self._tenant not in (ALL_TENANTS, record.tenant):
            raise CodeModeProtocolError("this record belongs to another app or tenant", details=details)
        self._verify_payload_signature(record, cast("dict[str, Any]", payload))
        return cast("dict[str, Any]", payload)

    def _verify_payload_signature(self, record: Record, payload: Mapping[str, Any]) -> None:
        """Raise `CodeModeProtocolError` if the requests in the database differ from those of the signed pause."""
        if self._signing_options is None:
            return
        try:
            # The store checks the expiry.
            self._create_key_ring(self._signing_options).verify(payload, (self.app,), now_ms=None)
        except CodeModeProtocolError as error:
            details = {**error.details, "origin": "continuation", "not_resumable": True}
            raise CodeModeProtocolError(f"the payload of the record: {error.message}", details=details) from None
        require_display_digests(record.requests, payload[_DIGESTS_KEY])

    def _create_key_ring(self, options: ContinuationOptions) -> KeyRing:
        keys = options.keys if options.keys is not None else get_or_create_process_keys()
        return KeyRing(keys, purpose="agent record", binding=options.conversation_id)

    def require_guard(self, tool: Any, options_name: str, *, unless_journaled: bool = False) -> None:
        """Raise `ValueError` if a tool uses another guard than ``store.guard``.

        ``options_name`` names its options in the message. ``unless_journaled`` accepts a tool with a journal, which
        records its calls.
        """
        continuation = get_continuation_options(tool)
        if not (unless_journaled and continuation is not None and continuation.journal is not None):
            require_tool_uses_store_guard(self.store, tool, options_name)

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
        """Return the pause of an agent's run with its requests and ``state``, plain JSON with which it is resumed.

        ``key`` identifies the pause. ``tool`` is the tool that paused, ``tool_forms`` describe the tools of the
        requests, ``source`` is the program or programs.
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
        """Claim the resumed run of a pause, given its `read_payload`, while the block runs. See `hold_agent_run`."""
        guard: Any = self.store.guard
        return hold_agent_run(
            guard, payload["key"], answers, payload["expiresAtMs"], is_framework_durable=is_framework_durable
        )

    @staticmethod
    def require_unchanged(record: Record, requests: Iterable[PendingRequest]) -> None:
        """Raise `CodeModeProtocolError` unless a record displays these requests."""
        require_display_digests(record.requests, compute_display_digests(requests))

    @staticmethod
    def join_programs(programs: list[str]) -> tuple[str | None, list[int]]:
        """Return programs as one text, and the number of lines before each."""
        return join_program_texts(programs)

    async def get_waiting_pause(self, record: Record) -> StoredPause:
        """Return the pause of a record that still lacks answers; nothing has run with the others."""
        interrupt_ids = record.versions[-1].interrupt_ids
        pause = await self.store.get(interrupt_ids[0], tenant=record.tenant) if interrupt_ids else None
        if pause is None:
            raise CodeModeProtocolError("the agent continued without these answers", details={"superseded": True})
        return to_stored_pause(pause, waits_for_all=True)

    async def get_resume_settings(self, record: Record) -> dict[str, Any]:
        """Return the settings with which a record is resumed."""
        settings: Any = {} if self._resume_with is None else self._resume_with(record)
        return dict(await settings if inspect.isawaitable(settings) else settings)


def compute_display_digests(requests: Iterable[StoredRequest | PendingRequest]) -> dict[str, str]:
    """Return the display digests by request id."""
    return {request.interrupt_id: compute_display_digest(request) for request in requests}


def require_display_digests(requests: Iterable[StoredRequest], expected: Mapping[str, str]) -> None:
    """Raise `CodeModeProtocolError` unless the requests have the expected display digests, given by request id."""
    displayed = compute_display_digests(requests)
    for interrupt_id, digest in expected.items():
        if displayed.get(interrupt_id) != digest:
            raise CodeModeProtocolError(
                f"the request {interrupt_id!r} was changed in the database: it differs from the agent's request",
                details={"origin": "continuation", "not_resumable": True},
            )


def to_stored_pause(pause: Interrupt, **columns: Any) -> StoredPause:
    """Return a pause with columns of its record."""
    fields = {"requests": pause.requests, "outer_tool_call_id": pause.outer_tool_call_id}
    return StoredPause(**fields, continuation=pause.continuation, **columns)


def encode_agent_outcome(outcome: Any) -> dict[str, Any]:
    """Encode the outcome of a run, an output or a `StoredPause`, as plain JSON."""
    if not isinstance(outcome, StoredPause):
        return {"output": outcome}
    forms: ToolForms = outcome.tool
    catalog = {name: asdict(form) for name, form in forms.catalog.items()}
    tool = {"name": forms.name, "catalog": catalog}
    return {"pause": outcome.to_dict(), "tool": tool, "source": outcome.source, "payload": outcome.payload}


def decode_agent_outcome(outcome: Mapping[str, Any]) -> Any:
    """Decode what `encode_agent_outcome` returned."""
    if "output" in outcome:
        return outcome["output"]
    catalog = {name: ToolForm(**form) for name, form in outcome["tool"]["catalog"].items()}
    forms = ToolForms(outcome["tool"]["name"], catalog)
    return to_stored_pause(
        Interrupt.from_dict(outcome["pause"]), tool=forms, source=outcome["source"], payload=outcome["payload"]
    )


def join_program_texts(programs: list[str]) -> tuple[str | None, list[int]]:
    """Return programs as one text, and the number of lines before each."""
    if len(programs) < 2:
        return (programs[0] or None if programs else None), [0] * len(programs)
    text, first_lines = "", list[int]()
    for number, program in enumerate(programs, 1):
        text += f"// program {number} of {len(programs)}\n"
        first_lines.append(text.count("\n"))
        text += f"{program}\n"
    return text, first_lines


# Guards of their own keep programs from repeating calls. The agent's other effects have no guard: a claim is recorded
# before they start, so that they are not repeated after the death of the host.

_log = logging.getLogger("codemode.stores")


class AgentRun:
    """A resumed run. With ``is_finished``, ``outcome`` is recorded and nothing runs.

    ``is_unguarded``: the agent has had, or may have had, effects that no guard recorded.
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
        """True if the outcome of the run is recorded."""
        return self.recorded_outcome is not None

    @property
    def outcome(self) -> Any:
        """The output of a finished run, or the `StoredPause` in which it waits."""
        return decode_agent_outcome(self.recorded_outcome or {"output": None})

    async def finish(self, outcome: Any) -> Any:
        """Record an output (plain JSON) or `StoredPause`; return the recorded outcome, maybe an earlier one."""
        return decode_agent_outcome(await self.record_outcome(encode_agent_outcome(outcome)))

    async def claim(self) -> None:
        """Claim the run. Raises `CodeModeProtocolError` if another host died with unguarded effects."""
        existing = await self._guard.claim(self._claim)
        if isinstance(existing, str):
            self.recorded_outcome = decode_json(existing)
            return
        self._held_keys.add(self._claim.key)
        if self._is_framework_durable:
            return
        if existing is None:
            # A lost run that a person runs again.
            await self._guard.release(self._unguarded_claim.key)
        elif await self._guard.claim(self._unguarded_claim) is None:
            self._held_keys.add(self._unguarded_claim.key)
        else:
            self._held_keys.clear()
            raise self._create_outcome_unknown_error()

    async def mark_unguarded(self) -> None:
        """Record that unguarded effects may follow. Raises `CodeModeProtocolError` if another host did."""
        if self._unguarded_claim.key not in self._held_keys:
            if await self._guard.claim(self._unguarded_claim) is not None:
                raise self._create_outcome_unknown_error()
            self._held_keys.add(self._unguarded_claim.key)
        self.is_unguarded = True

    async def check_handed_over_or_claim(self) -> bool:
        """Return whether a durable framework received these answers before."""
        if isinstance(await self._guard.claim(self._handover_claim), str):
            return True
        self._held_keys.add(self._handover_claim.key)
        return False

    async def mark_handed_over(self) -> None:
        """Record that the framework has received the answers."""
        await self._guard.record(self._handover_claim.key, '"handed"')

    async def record_outcome(self, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
        """Record an outcome, a JSON object, and return the recorded one."""
        text = encode_json(dict(outcome), what="the outcome of the agent")
        existing = await self._guard.record(self._claim.key, text)
        return outcome if not isinstance(existing, str) or existing == text else decode_json(existing)

    async def release(self) -> None:
        """Release the claims: nothing was done that must not be repeated."""
        for key in self._held_keys:
            await self._guard.release(key)
        self._held_keys.clear()

    async def renew(self) -> None:
        """Renew the claims until cancelled."""
        renew: Any = getattr(self._guard, "renew", None)
        while renew is not None:
            await asyncio.sleep(RENEW_SECONDS)
            for key in tuple(self._held_keys):
                try:
                    await renew(key)
                except Exception:  # noqa: BLE001 - a guard is host code, and may work again the next time
                    _log.warning("the claim of an agent's run could not be renewed", exc_info=True)

    def _create_outcome_unknown_error(self) -> CodeModeProtocolError:
        message = "the progress of the agent is unknown: its host died or hung after its programs had ended"
        return CodeModeProtocolError(message, details={"origin": "continuation"})


@asynccontextmanager
async def hold_agent_run(
    guard: ResumeGuard, key: str, answers: Mapping[str, Any], expires_at_ms: int, *, is_framework_durable: bool = False
) -> AsyncGenerator[AgentRun]:
    """Claim the resumed run of an agent while the block runs. ``key`` names its pause, ``answers`` its answers.

    If the block fails before `AgentRun.mark_unguarded`, the run can be tried again. ``is_framework_durable``: the
    framework itself persists what was done. Raises `CodeModeProtocolError` when other answers were given before.
    """
    digest = hashlib.sha256(encode_canonical_json(dict(answers)).encode()).hexdigest()
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
