"""Keep paused programs in the store, resume the decided ones, and keep answers for later calls."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from codemode.data.json_values import canonical_json, well_formed
from codemode.data.narrowing import is_object, mapping_or_empty
from codemode.errors import CodeModeError, CodeModeProtocolError, Resumable
from codemode.execution.call_context import CallContext
from codemode.host.threads import off_loop
from codemode.interrupts.interrupt import APPROVAL_KIND, Interrupt
from codemode.observe.request_telemetry import detach_trace
from codemode.stores.errors import RecordExpiredError, StoreError, StoreUnavailableError, UnknownRequestError
from codemode.stores.interrupt_store import InterruptStore
from codemode.stores.records import ALL_TENANTS, Lease, Record, StoredPause, StoredRequest, Tenant
from codemode.stores.resume_outcome import outcome_error
from codemode.stores.resumer import Resumer
from codemode.surfaces.modules.response import RunResponse
from codemode.surfaces.modules.run_tool import RunTool
from codemode.trace.visible_text import one_line, visible

from ..gateway.options import APP_NAME
from ..gateway.principals import CallOrigin, Principal
from .questions import UNKNOWN_KEY_MESSAGE, Question, run_ended_response
from .remembered_answers import RememberedAnswer, RememberedAnswers, Scope, ToolIdentity


def build_tool_payload(questions: Iterable[Question], session: str | None) -> dict[str, Any]:
    """Return what a record keeps of the tools of its calls. ``session`` is that of `Remembered.session_of`, if any."""
    identified = [question for question in questions if question.definition_digest is not None]
    return {
        "definitions": {question.interrupt_id: question.definition_digest for question in identified},
        "servers": {question.interrupt_id: question.server for question in identified},
        "session": session,
    }


def get_definition_digest(record: Record, interrupt_id: str) -> Any:
    """Return the digest of the tool of a call; None where it was not known."""
    return mapping_or_empty(mapping_or_empty(record.payload).get("definitions")).get(interrupt_id)


def get_tool_identity(record: Record, request: StoredRequest) -> ToolIdentity | None:
    """Return the tool of a call of a record as it was when it was kept; None where that is not known."""
    servers = mapping_or_empty(mapping_or_empty(record.payload).get("servers"))
    definition, server = get_definition_digest(record, request.interrupt_id), servers.get(request.interrupt_id)
    if not isinstance(definition, str) or not isinstance(server, str):
        return None
    return ToolIdentity(server, request.tool_name.partition(".")[2], definition)


def get_session_digest(record: Record) -> str | None:
    """Return what names the session of whoever has sent the program, where that is known."""
    digest = mapping_or_empty(record.payload).get("session")
    return digest if isinstance(digest, str) else None


_MAX_LABEL_CHARACTERS = 200
_POLL_SECONDS = 0.5
_OPEN_STATES = ("pending", "resuming", "resting")
_MAX_RUNS_PER_PROGRAM = 20


class PendingStore:
    """The pauses of one principal in the store, of which ``most`` may wait. ``store`` is opened when first needed.

    ``session`` names theirs to those who answer for it elsewhere.
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
        self._remaining_slots = (
            0  # for how many more pauses there certainly is room; the store is asked again when it is used up
        )

    @property
    def store(self) -> InterruptStore:
        """The store itself."""
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
        """Keep a pause for people; return the id of its record. Raises `StoreUnavailableError`, `StoreError`.

        ``has_session``: an answer can hold for the session of whoever has sent it. ``is_new``: nobody was asked about
        it yet. Then that of the same program which waits already is as good.
        """
        question_list = list(questions)
        self._remaining_slots -= 1
        labels = {
            "principal": _to_label([self._tenant]),
            "server": _to_label(question.server for question in question_list),
            "tool": _to_label(question.tool for question in question_list),
            "program": self._tool.program_digest(code),
        }
        return await self.store.put(
            interrupt,
            tool=self._tool,
            tenant=self._tenant,
            app=self._app,
            labels=labels,
            source=code,
            payload=build_tool_payload(question_list, self._session if has_session else None),
            alone="program" if is_new else None,
        )

    async def find_record(self, record_id: Any) -> Record | None:
        """Return a record of this principal; None where there is none."""
        if not isinstance(record_id, str) or not record_id.isalnum() or not record_id.isascii():
            return None
        try:
            found = await self.store.record(record_id, tenant=self._tenant)
        except UnknownRequestError:
            return None
        return found if found.app == self._app else None

    async def find_open_run(self, code: str) -> Record | None:
        """Return the run of the same program that has not ended, the newest; None where there is none."""
        labels = {"program": self._tool.program_digest(code)}
        # Before every run: a look on the loop spares the way through a thread, where the store has such a look.
        has_none_open: Any = getattr(self.store, "can_rule_out_open_records", None)
        if has_none_open is not None and has_none_open(tenant=self._tenant, app=self._app, labels=labels):
            return None
        page = await self.store.list(tenant=self._tenant, app=self._app, labels=labels, limit=_MAX_RUNS_PER_PROGRAM)
        return next((record for record in page.records if record.state in _OPEN_STATES), None)

    async def is_full(self) -> bool:
        """Tell whether as many of their programs wait in the store as may.

        Asked before a program runs: what runs already is kept all the same, so that nothing it has done is lost.
        """
        if self._remaining_slots <= 0:
            count: Any = getattr(self.store, "count_open", None)  # a store of the host's own may lack it
            if count is None:
                return False
            open_count = await count(tenant=self._tenant, app=self._app, most=self._max_waiting)
            # Other gateways keep pauses of theirs too: half of the room, so that this one looks again in time.
            self._remaining_slots = 0 if open_count >= self._max_waiting else (self._max_waiting - open_count + 1) // 2
        return self._remaining_slots <= 0

    async def decide(self, resolutions: Mapping[str, Any]) -> None:
        """Record what a person has answered to their client. Raises `StoreError`."""
        await self.store.decide(resolutions, actor=self._tenant, tenant=self._tenant)

    async def get_final_response(self, record: Record) -> RunResponse | None:
        """Return what a record has come to; None while it has not ended."""
        if record.state in _OPEN_STATES:
            return None
        try:
            value = await self.store.outcome(record.id, tenant=self._tenant, timeout_ms=0)
        except TimeoutError:
            return None
        except StoreUnavailableError:
            raise
        except RecordExpiredError:
            return run_ended_response("nobody has decided in time")
        except StoreError as error:
            return run_ended_response(error.message)
        except Exception as error:  # noqa: BLE001 - whatever the run ended with is its end
            return run_ended_response(getattr(error, "message", type(error).__name__))
        return RunResponse(value) if is_object(value) else run_ended_response("its outcome cannot be read")

    async def wait_for_end(
        self, record_id: str, wait_ms: float, version: int | None = None
    ) -> Record | RunResponse | None:
        """Wait for the end of a record and return its response, or the record as it is once the time is over.

        With ``version`` it waits no longer than for a later pause that asks. None: there is no such record.
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
    """Return the requests of a record about which a person may decide."""
    return [request for request in record.requests if request.state == "waiting"]


def _to_label(texts: Iterable[str]) -> str:
    return one_line(", ".join(dict.fromkeys(texts)), _MAX_LABEL_CHARACTERS)


ReportSteps = Callable[[str | None], AbstractContextManager[None]]
"""Gives what is entered while a program runs for the request of this id, whose client may want to hear of its steps."""


class PrincipalRuns:
    """The runs of one principal: how each goes on, and what forms for its questions are made of."""

    def __init__(self, run_tool: RunTool, principal: Principal, report_steps: ReportSteps) -> None:
        self._report_steps = report_steps
        self._run_tool = run_tool
        self._principal = principal
        self.name = run_tool.name

    @property
    def catalog(self) -> Any:
        """The tools as they were last listed: a store takes the forms of what is asked from here."""
        return self._run_tool.catalog

    def program_digest(self, code: str) -> str:
        """Return what tells programs apart: by their text, and by the servers that they name."""
        canonical = canonical_json([code, self._run_tool.homes.find_in_code(code)])
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()

    async def resume_with_answers(
        self, interrupt: Interrupt, resolutions: Mapping[str, Any], origin: CallOrigin | None = None
    ) -> RunResponse | Interrupt:
        """Go on with answers. Raises `CodeModeProtocolError` for what cannot go on, in words for who has a gateway."""
        call_origin = origin or CallOrigin(principal=self._principal, outer_id=interrupt.outer_tool_call_id)
        call = CallContext(context=call_origin, conversation_id=self._principal.id)
        try:
            with self._report_steps(call_origin.outer_id):
                return await self._run_tool.resume(interrupt, call=call, resolutions=resolutions)
        except CodeModeProtocolError as error:
            if not error.details.get("unknown_key"):
                raise
            # The record, the log and the model have it from here: none of them knows options of Python.
            raise CodeModeProtocolError(UNKNOWN_KEY_MESSAGE, details=error.details) from None

    async def resume(self, interrupt: Interrupt, resolutions: Mapping[str, Any]) -> Any:
        """Do so for a `Resumer`: what was cut off in doubt asks anew, and what could not begin is tried again."""
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
        if isinstance(result.exception, CodeModeError) and outcome_error(result.exception) is None:
            raise result.exception
        return result


class StoredRunResumer:
    """Goes on with what people decide in the store, from `start` to `aclose`.

    ``runs_of`` gives the runs of a principal, for as long as one of them goes on. ``store`` is opened by
    `start`. ``tenant`` is whose runs go on.
    """

    def __init__(
        self,
        store: Callable[[], InterruptStore],
        open_runs: Callable[[Principal], AbstractAsyncContextManager[PrincipalRuns]],
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
        """Begin, unless that was done; once it is closed nothing begins any more."""
        if self._resumer is None and not self._is_closed:
            self._resumer = Resumer(self._store(), tenant=self._tenant, app=self._app, resume=self.resume)
            with detach_trace():  # whoever comes first has one, and what goes on later belongs to no request
                await self._resumer.__aenter__()

    async def aclose(self, grace_seconds: float = 5.0) -> None:
        """Claim nothing more, and wait a while for what runs; the rest is cut off, and goes on at the next host."""
        self._is_closed = True
        resumer, self._resumer = self._resumer, None
        if resumer is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(resumer.__aexit__(), grace_seconds)

    async def resume(self, lease: Lease, *, resolutions: Mapping[str, Any]) -> Any:
        """Go on with one run, as a `Resumer` wants it."""
        async with self._open_runs(Principal(lease.record.tenant)) as runs:
            return await runs.resume(lease.interrupt, resolutions)


StoredRunResumer.resume.takes_lease = True  # pyright: ignore[reportFunctionMemberAccess] - for a `Resumer`


# Answers that hold for later calls: for which calls they are possible, what is stored, and what the audit records, also
# when one is taken back. A gateway reads the stored answers at its next call.

SCOPE_DESCRIPTIONS: Mapping[Scope, str] = MappingProxyType(
    {"session": "until the client leaves", "always": "always, while the tool stays as it is"}
)
"""For how long such an approval may hold, in words."""
ALLOWED_AUDIT_KIND = "later_calls_allowed"
FORGOTTEN_AUDIT_KIND = "later_calls_forgotten"
_MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True)
class StandingApproval:
    """The tools of which later calls are allowed too, to the principal of one record."""

    tools: tuple[ToolIdentity, ...]
    session: str
    scope: Scope

    @classmethod
    def from_requests(cls, record: Record, requests: Iterable[StoredRequest], scope: Scope) -> StandingApproval:
        """Return those of the tools of these calls.

        Raises `ValueError` where it is not known which ones they were, or where there is no such session.
        """
        session = get_session_digest(record)
        tools: dict[ToolIdentity, None] = {}
        for request in requests:
            tool = get_tool_identity(record, request)
            if request.kind != APPROVAL_KIND or record.app != APP_NAME or tool is None:
                raise ValueError(
                    f"call {visible(request.interrupt_id)} can be answered for itself alone: nothing is kept of how its"
                    " tool was when the call was made"
                )
            tools[tool] = None
        if scope == "session" and session is None:
            raise ValueError("whoever has sent this program has no session for which an answer could hold")
        return cls(tuple(tools), session or "", scope)

    @property
    def description(self) -> str:
        """Say which calls they are, for whoever is request."""
        tool_names = ", ".join(one_line(f"{tool.server}.{tool.tool}", _MAX_NAME_CHARACTERS) for tool in self.tools)
        return f"later calls of {tool_names} too, {SCOPE_DESCRIPTIONS[self.scope]}"

    async def save(
        self,
        remembered: RememberedAnswers,
        store: InterruptStore,
        record: Record,
        *,
        actor: str,
        address: str | None = None,
    ) -> None:
        """Write it into the audit, and let the gateways of this state folder know. To be done once it was decided.

        Raises `OSError`, and the errors of `InterruptStore.note`.
        """
        for tool in self.tools:
            details = {"server": _short_name(tool.server), "tool": _short_name(tool.tool), "holds": self.scope}
            # Told first: nothing is allowed of which the audit does not know.
            await store.note(
                ALLOWED_AUDIT_KIND,
                actor=actor,
                tenant=record.tenant,
                address=address,
                details=details,
                record_id=record.id,
            )
            await off_loop(
                partial(remembered.record_outside_answer, record.tenant, self.session, tool, scope=self.scope)
            )


async def note_forgotten(answer: RememberedAnswer, store: InterruptStore, *, actor: str) -> None:
    """Write into the audit that an answer which always held was taken back. Raises what `InterruptStore.note` does."""
    details = {"server": _short_name(answer.server), "tool": _short_name(answer.tool)}
    await store.note(FORGOTTEN_AUDIT_KIND, actor=actor, tenant=answer.principal, details=details)


def _short_name(text: str) -> str:
    return well_formed(one_line(text, _MAX_NAME_CHARACTERS))
