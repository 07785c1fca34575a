"""A query over logs that takes longer than its tool waits: its results are there at the third look."""

from __future__ import annotations

from typing import Any

from codemode import CodeModeToolError

from .people import seeded

_LOOKS = 3
_QUERY = "3f1c0c52-6d2e-4a0f-9c1b-5f4e6a7b8c9d"


class Logs:
    def __init__(self) -> None:
        self._looks = 0

    def functions(self) -> dict[str, Any]:
        return {
            "cloudwatch_execute_log_insights_query": self._execute,
            "cloudwatch_get_logs_insight_query_results": self._results,
        }

    async def _execute(self, given: dict[str, Any]) -> dict[str, Any]:
        said = (
            f"Query {_QUERY} did not complete within 30 seconds. Use get_logs_insight_query_results with the returned "
            "queryId to try again to retrieve query results."
        )
        return {"result": {"queryId": _QUERY, "status": "Polling Timeout", "message": said}}

    async def _results(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["query_id"] != _QUERY:
            raise CodeModeToolError("ResourceNotFoundException: Query does not exist")
        self._looks += 1
        is_done = self._looks >= _LOOKS
        matched = 48_211 if is_done else 14_060 * self._looks
        statistics = {"recordsMatched": matched, "recordsScanned": matched * 31, "bytesScanned": matched * 31 * 412}
        status = "Complete" if is_done else "Running"
        result = {"queryId": _QUERY, "status": status, "statistics": statistics, "results": _rows() if is_done else []}
        return {"result": result}


def _rows() -> list[dict[str, Any]]:
    """Return the declined payments of each customer, most first."""
    numbers = seeded("logs")
    customers = sorted(numbers.sample(range(1, 81), 52))
    counted = sorted(((numbers.randint(3, 900), at) for at in customers), reverse=True)
    return [
        {
            "customerId": f"C-{1000 + at}",
            "declined": str(count),
            "lastSeen": f"2026-11-19 {numbers.randint(10, 23)}:{numbers.randint(10, 59)}:{numbers.randint(10, 59)}.000",
            "lastReason": numbers.choice(["insufficient_funds", "expired_card", "do_not_honor", "issuer_timeout"]),
        }
        for count, at in counted
    ]
