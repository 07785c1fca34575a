"""From where a run that was cut off can go on: which calls are made again, which ones somebody is asked about.

Runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..data.json_values import canonical_json, decode_json
from ..errors import guest_view
from ..interrupts.approval import ApprovalRequest, denial
from ..interrupts.resolutions import Answer, Approval, KnownOutcome, is_denial
from ..options.parts import ApprovalPolicy
from ..protocol.ledger import Ledger, LedgerEntry, Outcome, Rejected, recovery_ledger
from ..tools.catalog import Catalog
from ..tools.tool import MISSING, Tool
from .allowed_input import CheckedInput


def begun_ledger(
    ledger: Ledger,
    answers: Mapping[int, Answer],
    inputs: Mapping[int, CheckedInput],
    policy: ApprovalPolicy,
    now_ms: int,
) -> Ledger:
    """Return the ledger of a resume that was begun with these answers and of which nothing more is known.

    What an answer let run may have run. What it only told, a denial or an outcome, is so.
    """
    begun = Ledger(list(ledger.entries), list(ledger.deliveries))
    for request_id, answer in answers.items():
        entry, checked = begun[request_id], inputs.get(request_id)
        told = _told(entry, answer, policy)
        if told is not None:
            begun.settle(request_id, told, now_ms)
            begun.deliveries.append(request_id)
        elif isinstance(answer, Approval):
            begun.start(request_id, None if checked is None else checked.shown_json, is_approved=True)
        else:
            begun.start(request_id, entry.executed_input_json, is_approved=entry.is_approved)
    return begun


def _told(entry: LedgerEntry, answer: Answer, policy: ApprovalPolicy) -> Outcome | None:
    if isinstance(answer, KnownOutcome):
        return answer.outcome
    if not is_denial(answer):
        return None
    request = ApprovalRequest(entry.name, None, entry.tool_call_id or "")
    return Rejected(*guest_view(denial(request, answer.decision, policy)))


@dataclass(frozen=True, slots=True)
class Recovery:
    """The calls of one invocation as its tools see them. ``kept_inputs`` are what some ran with, by request id."""

    catalog: Catalog[Tool]
    kept_inputs: Mapping[int, str]

    def ledger(self, ledger: Ledger, salt: str) -> Ledger:
        """Return the ledger from which the run goes on."""
        return recovery_ledger(ledger, salt, self._runs_again, self._ran_with, self._runs_again_with)

    def _runs_again(self, entry: LedgerEntry) -> bool:
        """Return True for a call that does no harm when it runs twice."""
        tool = self.catalog.get(entry.name)
        if entry.kind == "catalog" or not entry.is_started:
            return True
        if entry.kind == "fetch" or tool is None:
            return False
        return any(tool.annotations.get(hint) is True for hint in ("readOnlyHint", "idempotentHint"))

    def _runs_again_with(self, entry: LedgerEntry) -> str | None:
        """Return the input of a call that is made again, if its schema would give it another one."""
        tool = self.catalog.get(entry.name) if entry.kind == "tool" and entry.is_started else None
        return self._ran_with(entry) if tool is not None and tool.input_varies else entry.executed_input_json

    def _ran_with(self, entry: LedgerEntry) -> str | None:
        """Return the validated input of a call that was started."""
        tool = self.catalog.get(entry.name) if entry.kind == "tool" else None
        if tool is None or entry.executed_input_json is not None:
            return entry.executed_input_json if tool is not None else entry.input_json
        if entry.id in self.kept_inputs:
            return self.kept_inputs[entry.id]
        issued = MISSING if entry.input_json is None else decode_json(entry.input_json)
        try:
            return canonical_json(tool.validate_input(issued).json_value)
        except Exception:  # noqa: BLE001 - validators are host code; this one took the same input a moment ago
            return entry.input_json
