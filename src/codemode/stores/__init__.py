"""Stores, records, leases and the audit of paused programs and agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..host.imports import create_lazy_getattr

if TYPE_CHECKING:
    from ..continuations.guard import MemoryResumeGuard as MemoryResumeGuard
    from ..continuations.guard import ResumeGuard as ResumeGuard
    from ..continuations.journal import Journal as Journal
    from ..continuations.journal import OpenedJournal as OpenedJournal
    from .agent_runs import AgentRecords as AgentRecords
    from .agent_runs import AgentRun as AgentRun
    from .agent_runs import ResumeWith as ResumeWith
    from .agent_runs import ToolForm as ToolForm
    from .audit import AuditLine as AuditLine
    from .audit_chain import BadLine as BadLine
    from .audit_chain import verify_audit as verify_audit
    from .durability import StoreLike as StoreLike
    from .durability import open_store as open_store
    from .errors import AlreadyDecidedError as AlreadyDecidedError
    from .errors import AnswerRefusedError as AnswerRefusedError
    from .errors import RecordExpiredError as RecordExpiredError
    from .errors import RecordLostError as RecordLostError
    from .errors import RecordWithdrawnError as RecordWithdrawnError
    from .errors import RequestSettledError as RequestSettledError
    from .errors import RequestSupersededError as RequestSupersededError
    from .errors import StoreError as StoreError
    from .errors import StoreFullError as StoreFullError
    from .errors import StoreUnavailableError as StoreUnavailableError
    from .errors import UnknownRequestError as UnknownRequestError
    from .interrupt_store import InterruptStore as InterruptStore
    from .outbox import Outbox as Outbox
    from .postgres import PostgresInterruptStore as PostgresInterruptStore
    from .records import ALL_TENANTS as ALL_TENANTS
    from .records import Change as Change
    from .records import FailedNotice as FailedNotice
    from .records import LastResumed as LastResumed
    from .records import Lease as Lease
    from .records import Notice as Notice
    from .records import Page as Page
    from .records import Record as Record
    from .records import RecordOutcome as RecordOutcome
    from .records import RecordVersion as RecordVersion
    from .records import StoredPause as StoredPause
    from .records import StoredRequest as StoredRequest
    from .records import Tenant as Tenant
    from .resumer import Resumer as Resumer
    from .sqlite import MemoryInterruptStore as MemoryInterruptStore
    from .sqlite import SqliteInterruptStore as SqliteInterruptStore

# Names by the module that defines them. A test compares this with the imports above.
_LAZY_NAMES = {
    ".continuations.guard": "MemoryResumeGuard ResumeGuard",
    ".continuations.journal": "Journal OpenedJournal",
    "agent_runs": "AgentRecords AgentRun ResumeWith ToolForm",
    "audit": "AuditLine",
    "audit_chain": "BadLine verify_audit",
    "durability": "open_store StoreLike",
    "errors": (
        "AlreadyDecidedError AnswerRefusedError RecordExpiredError RecordLostError RecordWithdrawnError "
        "RequestSettledError RequestSupersededError StoreError StoreFullError StoreUnavailableError "
        "UnknownRequestError"
    ),
    "interrupt_store": "InterruptStore",
    "outbox": "Outbox",
    "postgres": "PostgresInterruptStore",
    "records": (
        "ALL_TENANTS Change FailedNotice LastResumed Lease Notice Page Record RecordOutcome RecordVersion "
        "StoredPause StoredRequest Tenant"
    ),
    "resumer": "Resumer",
    "sqlite": "MemoryInterruptStore SqliteInterruptStore",
}
__all__ = [name for names in _LAZY_NAMES.values() for name in names.split()]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = create_lazy_getattr(__name__, _LAZY_NAMES)
