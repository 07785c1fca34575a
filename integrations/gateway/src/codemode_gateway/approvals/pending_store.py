"""Store paused programs, resume decided ones, and save approvals for later calls."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from codemode.data.json_values import encode_canonical_json, replace_lone_surrogates
from codemode.data.narrowing import is_object, mapping_or_empty
from codemode.errors import CodeModeError, CodeModeProtocolError, Resumable
from codemode.execution.call_context import CallContext
from codemode.host.threads import run_in_single_use_thread
from codemode.interrupts.interrupt import APPROVAL_KIND, Interrupt
from codemode.observe.request_telemetry import without_parent_trace
from codemode.stores.errors import RecordExpiredError, StoreError, StoreUnavailableError, UnknownRequestError
from codemode.stores.interrupt_store import InterruptStore
from codemode.stores.records import ALL_TENANTS, Lease, Record, StoredPause, StoredRequest, Tenant
from codemode.stores.resume_outcome import get_record_ending_error
from codemode.stores.resumer import Resumer
from codemode.surfaces.modules.response import RunResponse
from codemode.surfaces.modules.run_tool import RunTool
from codemode.trace.visible_text import clip_to_visible_line, escape_invisible

from ..gateway.options import APP_NAME
from ..gateway.principals import CallOrigin, Principal
from .questions import UNKNOWN_KEY_MESSAGE, Question, run_ended_response
from .remembered_answers import RememberedAnswer, RememberedAnswers, Scope, ToolIdentity


def build_record_payload(questions: Iterable[Question], session: str | None) -> dict[str, Any]:
    """Return the tools of a record's calls as stored. ``session`` is the session's digest, if any."""
    identified = [question for question in questions if question.definition_digest is not None]
    return {
        "definitions": {question.interrupt_id: question.definition_digest for question in identified},
        "servers": {question.interrupt_id: question.server for question in identified},
        "session": session,
    }


def get_definition_digest(record: Record, interrupt_id: str) -> Any:
    """Return the stored definition digest of a call's tool, or None."""
    return mapping_or_empty(mapping_or_empty(record.payload).get("definitions")).get(interrupt_id)


def get_tool_identity(record: Record, request: StoredRequest) -> ToolIdentity | None:
    """Return a call's tool as it was when the record was stored, or None."""
    servers = mapping_or_empty(mapping_or_empty(record.payload).get("servers"))
    definition, server = get_definition_digest(record, request.interrupt_id), servers.get(request.interrupt_id)
    if not isinstance(definition, str) or not isinstance(server, str):
        return None
    return ToolIdentity(server, request.tool_name.partition(".")[2], definition)


def get_session_digest(record: Record) -> str | None:
    """Return the digest of the session that sent the program, or None."""
    digest = mapping_or_empty(record.payload).get("session")
    return digest if isinstance(digest, str) else None


_MAX_LABEL_CHARACTERS = 200
_POLL_SECONDS = 0.5
_OPEN_STATES = ("pending", "resuming", "resting")
_MAX_RUNS_PER_PROGRAM = 20


class PendingStore:
    """The stored pauses of one principal, at most ``max_waiting``. ``store`` opens the store when first needed.

    ``session`` is the digest of the principal's session, for answers given outside the gateway.
    """

    def __init__(
        self,
        store: Callable[[], InterruptStore],
        principal: Principal,
        app: str,
        tool: Any,
        session: str,
        max_waiting: int,
    ) -> None:
        self._store = store
        self._tenant = principal.id
        self._app = app
        self._tool = tool
        self._session = session
        self._max_waiting = max_waiting
        self._remaining_slots = 0  # a lower bound; the store counts again at 0

    @property
    def store(self) -> InterruptStore:
        """The open store."""
        return self._store()

    async def save(
        self,
        interrupt: Resumable,
        questions: Iterable[Question],
        code: str,
        *,
        has_session: bool = True,
        is_new: bool = False,
    ) -> str:
        """Store a pause and return the id of its record. Raises `StoreUnavailableError`, `StoreError`.

        ``has_session``: an answer can hold for the sender's session. ``is_new``: no question was asked yet, so a
        waiting record of the same program is reused.
        """
        question_list = list(questions)
        self._remaining_slots -= 1
        labels = {
            "principal": _to_label([self._tenant]),
            "server": _to_label(question.server for question in question_list),
            "tool": _to_label(question.tool for question in question_list),
            "program": self._tool.compute_program_digest(code),
        }
        return await self.store.put(
            interrupt,
            tool=self._tool,
            tenant=self._tenant,
            app=self._app,
            labels=labels,
            source=code,
            payload=build_record_payload(question_list, self._session if has_session else None),
            alone="program" if is_new else None,
        )

    async def find_record(self, record_id: Any) -> Record | None:
        """Return a record of this principal, or None."""
        if not isinstance(record_id, str) or not record_id.isalnum() or not record_id.isascii():
            return None
        try:
            record = await self.store.record(record_id, tenant=self._tenant)
        except UnknownRequestError:
            return None
        return record if record.app == self._app else None

    async def find_open_run(self, code: str) -> Record | None:
        """Return the newest run of the same program that has not ended, or None."""
        labels = {"program": self._tool.compute_program_digest(code)}
        # Called before every run. The store may answer on the event loop, without a thread.
        has_none_open: Any = getattr(self.store, "can_rule_out_open_records", None)
        if has_none_open is not None and has_none_open(tenant=self._tenant, app=self._app, labels=labels):
            return None
        page = await self.store.list(tenant=self._tenant, app=self._app, labels=labels, limit=_MAX_RUNS_PER_PROGRAM)
        return next((record for record in page.records if record.state in _OPEN_STATES), None)

    async def is_full(self) -> bool:
        """Return whether the principal has the maximum of waiting programs.

        Checked before a program starts. A started program is always stored, so that none of its work is lost.
        """
        if self._remaining_slots <= 0:
            count: Any = getattr(self.store, "count_open", None)  # a custom store may lack it
            if count is None:
                return False
            open_count = await count(tenant=self._tenant, app=self._app, most=self._max_waiting)
            # Other gateways store pauses too: use half of the free slots before counting again.
            self._remaining_slots = 0 if open_count >= self._max_waiting else (self._max_waiting - open_count + 1) // 2
        return self._remaining_slots <= 0

    async def save_decisions(self, resolutions: Mapping[str, Any]) -> None:
        """Store the decisions that a person made in the client. Raises `StoreError`."""
        await self.store.decide(resolutions, actor=self._tenant, tenant=self._tenant)

    async def get_final_response(self, record: Record) -> RunResponse | None:
        """Return the response of an ended record, or None."""
        if record.state in _OPEN_STATES:
            return None
        try:
            value = await self.store.outcome(record.id, tenant=self._tenant, timeout_ms=0)
        except TimeoutError:
            return None
        except StoreUnavailableError:
            raise
        except RecordExpiredError:
            return run_ended_response("no decision in time")
        except StoreError as error:
            return run_ended_response(error.message)
        except Exception as error:  # noqa: BLE001 - every error is the run's outcome
            return run_ended_response(getattr(error, "message", type(error).__name__))
        return RunResponse(value) if is_object(value) else run_ended_response("its outcome cannot be read")

    async def wait_for_end_or_new_questions(
        self, record_id: str, wait_ms: float, version: int | None = None
    ) -> Record | RunResponse | None:
        """Wait up to ``wait_ms`` for the end of a record. Return its response, else the record; None for an unknown id.

        With ``version`` also return the record once a later pause has new questions.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        with self.store.watch() as watch:
            while True:
                record = await self.find_record(record_id)
                if record is None:
                    return None
                response = await self.get_final_response(record)
                if response is not None:
                    return response
                has_new_question = version is not None and record.version > version and get_waiting_requests(record)
                remaining_seconds = deadline - loop.time()
                if has_new_question or remaining_seconds <= 0:
                    return record
                await watch.wait(min(remaining_seconds, _POLL_SECONDS))


def get_waiting_requests(record: Record) -> list[StoredRequest]:
    """Return the requests of a record that wait for a decision."""
    return [request for request in record.requests if request.state == "waiting"]


def _to_label(texts: Iterable[str]) -> str:
    return clip_to_visible_line(", ".join(dict.fromkeys(texts)), _MAX_LABEL_CHARACTERS)


ReportSteps = Callable[[str | None], AbstractContextManager[None]]
"""Returns a context in which a program runs for a request id and reports its steps to the client."""


class PrincipalRunResumer:
    """Resumes the runs of one principal, and has the tools from which forms are built."""

    def __init__(self, run_tool: RunTool, principal: Principal, report_steps: ReportSteps) -> None:
        self._report_steps = report_steps
        self._run_tool = run_tool
        self._principal = principal
        self.name = run_tool.name

    @property
    def catalog(self) -> Any:
        """The tools as last listed. The store builds forms from them."""
        return self._run_tool.catalog

    def compute_program_digest(self, code: str) -> str:
        """Return a digest of a program's text and of the servers that it names."""
        canonical = encode_canonical_json([code, self._run_tool.server_identities.get_digests_of_servers_in_code(code)])
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()

    async def resume_with_answers(
        self, interrupt: Interrupt, resolutions: Mapping[str, Any], origin: CallOrigin | None = None
    ) -> RunResponse | Interrupt:
        """Resume with answers. Raises `CodeModeProtocolError`, worded for gateway users, if that is impossible."""
        call_origin = origin or CallOrigin(principal=self._principal, outer_id=interrupt.outer_tool_call_id)
        call = CallContext(context=call_origin, conversation_id=self._principal.id)
        try:
            with self._report_steps(call_origin.outer_id):
                return await self._run_tool.resume(interrupt, call=call, resolutions=resolutions)
        except CodeModeProtocolError as error:
            if not error.details.get("unknown_key"):
                raise
            # The core's message names Python options, which gateway users do not have.
            raise CodeModeProtocolError(UNKNOWN_KEY_MESSAGE, details=error.details) from None

    async def resume_for_store(self, interrupt: Interrupt, resolutions: Mapping[str, Any]) -> Any:
        """Resume for a `Resumer`. An unknown outcome is asked about again; a run that could not start is retried."""
        result = await self.resume_with_answers(interrupt, resolutions)
        if isinstance(result, RunResponse) and result.recovery is not None and result.recovery.requests:
            result = cast("Interrupt", result.recovery)
        if isinstance(result, Interrupt):
            return StoredPause(
                requests=result.requests,
                outer_tool_call_id=result.outer_tool_call_id,
                continuation=result.continuation,
                tool=self,
            )
        if isinstance(result.exception, CodeModeError) and get_record_ending_error(result.exception) is None:
            raise result.exception
        return result


class StoredRunResumer:
    """Resumes decided runs from the store, between `start` and `aclose`.

    ``open_runs`` opens the runs of a principal while one of them resumes. `start` opens ``store``. ``tenant`` limits
    the runs to those of one principal.
    """

    def __init__(
        self,
        store: Callable[[], InterruptStore],
        open_runs: Callable[[Principal], AbstractAsyncContextManager[PrincipalRunResumer]],
        app: str = APP_NAME,
        *,
        tenant: Tenant = ALL_TENANTS,
    ) -> None:
        self._store = store
        self._tenant: Tenant = tenant
        self._open_runs = open_runs
        self._app = app
        self._resumer: Resumer | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Start resuming, once. Does nothing after `aclose`."""
        if self._resumer is None and not self._is_closed:
            self._resumer = Resumer(self._store(), tenant=self._tenant, app=self._app, resume=self.resume)
            with without_parent_trace():  # later work does not belong to the trace of the first request
                await self._resumer.__aenter__()

    async def aclose(self, grace_seconds: float = 5.0) -> None:
        """Claim no more runs, and wait up to ``grace_seconds`` for active ones; another host resumes the rest."""
        self._is_closed = True
        resumer, self._resumer = self._resumer, None
        if resumer is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(resumer.__aexit__(), grace_seconds)

    async def resume(self, lease: Lease, *, resolutions: Mapping[str, Any]) -> Any:
        """Resume one run, as `Resumer` requires."""
        async with self._open_runs(Principal(lease.record.tenant)) as runs:
            return await runs.resume_for_store(lease.interrupt, resolutions)


StoredRunResumer.resume.takes_lease = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`


# Approvals for later calls. A gateway reads the stored ones at its next call.

SCOPE_DESCRIPTIONS: Mapping[Scope, str] = MappingProxyType(
    {"session": "in this session", "always": "always, until the tool changes"}
)
"""How long such an approval holds."""
ALLOWED_AUDIT_KIND = "later_calls_allowed"
FORGOTTEN_AUDIT_KIND = "later_calls_forgotten"
_MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True)
class StandingApproval:
    """Tools whose later calls are allowed too, for the principal of one record."""

    tools: tuple[ToolIdentity, ...]
    session: str
    scope: Scope

    @classmethod
    def from_requests(cls, record: Record, requests: Iterable[StoredRequest], scope: Scope) -> StandingApproval:
        """Return the approval for the tools of these calls.

        Raises `ValueError` if a tool's definition was not stored, or if there is no session to hold for.
        """
        session = get_session_digest(record)
        tools: dict[ToolIdentity, None] = {}
        for request in requests:
            tool = get_tool_identity(record, request)
            if request.kind != APPROVAL_KIND or record.app != APP_NAME or tool is None:
                raise ValueError(
                    f"call {escape_invisible(request.interrupt_id)} can only be answered once: the definition of"
                    " its tool was not stored with it"
                )
            tools[tool] = None
        if scope == "session" and session is None:
            raise ValueError("the client that sent this program has no session, so no answer can hold for one")
        return cls(tuple(tools), session or "", scope)

    @property
    def description(self) -> str:
        """The later calls, in words for the person who decides."""
        tool_names = ", ".join(
            clip_to_visible_line(f"{tool.server}.{tool.tool}", _MAX_NAME_CHARACTERS) for tool in self.tools
        )
        return f"later calls of {tool_names}, {SCOPE_DESCRIPTIONS[self.scope]}"

    async def audit_and_save(
        self,
        remembered: RememberedAnswers,
        store: InterruptStore,
        record: Record,
        *,
        actor: str,
        address: str | None = None,
    ) -> None:
        """Record the approval in the audit, and save it for the gateways of this state folder.

        Call it after the decision was stored. Raises `OSError`, and the errors of `InterruptStore.add_audit_line`.
        """
        for tool in self.tools:
            details = {
                "server": _escape_and_shorten_name(tool.server),
                "tool": _escape_and_shorten_name(tool.tool),
                "holds": self.scope,
            }
            # The audit comes first: it has every allowed call.
            await store.add_audit_line(
                ALLOWED_AUDIT_KIND,
                actor=actor,
                tenant=record.tenant,
                address=address,
                details=details,
                record_id=record.id,
            )
            await run_in_single_use_thread(
                partial(remembered.save_external_answer, record.tenant, self.session, tool, scope=self.scope)
            )


async def audit_revoked_answer(answer: RememberedAnswer, store: InterruptStore, *, actor: str) -> None:
    """Record in the audit that a remembered answer was revoked. Raises as `InterruptStore.add_audit_line`."""
    details = {"server": _escape_and_shorten_name(answer.server), "tool": _escape_and_shorten_name(answer.tool)}
    await store.add_audit_line(FORGOTTEN_AUDIT_KIND, actor=actor, tenant=answer.principal, details=details)


def _escape_and_shorten_name(text: str) -> str:
    return replace_lone_surrogates(clip_to_visible_line(text, _MAX_NAME_CHARACTERS))
