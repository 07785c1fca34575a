"""Series of a metric: 60 points of each service, by the server's batch of queries."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from .people import seeded, text_of


class Metrics:
    def functions(self) -> dict[str, Any]:
        return {"cloudwatch_get_metric_data": self._data}

    async def _data(self, given: dict[str, Any]) -> dict[str, Any]:
        start, end = (datetime.fromisoformat(given[name]) for name in ("start_time", "end_time"))
        count = given.get("target_datapoints", 60)
        return {
            "metricDataResults": [_series(one, start, (end - start) / count, count) for one in given["queries"]],
            "messages": [],
        }


def _series(query: dict[str, Any], start: datetime, step: timedelta, count: int) -> dict[str, Any]:
    stat = query["metric_stat"]
    (service,) = (one["value"] for one in stat["dimensions"] if one["name"] == "ServiceName")
    numbers = seeded(f"{service} {stat['metric_name']}")
    level, peak = numbers.uniform(120, 480), numbers.uniform(0, count)
    points = [
        {
            "timestamp": text_of(start + at * step),
            "value": round(level * (1 + 1.6 * math.exp(-(((at - peak) / 5) ** 2))) + numbers.uniform(0, 40), 3),
        }
        for at in range(count)
    ]
    label = query.get("label") or service
    return {"id": query["id"], "label": label, "statusCode": "Complete", "datapoints": points, "messages": []}
