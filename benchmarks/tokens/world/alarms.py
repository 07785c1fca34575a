"""Alarms of CloudWatch and their histories, in the shapes that the server's output schemas state."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta
from typing import Any

from codemode import CodeModeToolError

from .people import NOW, SERVICES, before, seeded, text_of

_METRICS = {
    "CPUUtilization": (80.0, "AWS/ECS"),
    "MemoryUtilization": (85.0, "AWS/ECS"),
    "p95-latency": (900.0, "Shop/HTTP"),
    "5xx-rate": (2.0, "Shop/HTTP"),
    "queue-age": (600.0, "AWS/SQS"),
}
# Histories are asked for one after the other, and each third is refused once.
_REFUSED_EVERY = 3
_RETRIED_SECONDS = 0.05


class Alarms:
    """Alarms that are on, and when each of the services' latency alarms was on before."""

    def __init__(self) -> None:
        numbers = seeded("alarms")
        pairs = [(service, metric) for service in SERVICES for metric in _METRICS]
        chosen = sorted(numbers.sample(pairs, 44))
        self._alarms = [_alarm(service, metric, numbers) for service, metric in chosen]
        self._histories = {f"{one}-p95-latency": _history(one, numbers) for one in SERVICES}
        self._asked: Counter[str] = Counter()

    def functions(self) -> dict[str, Any]:
        return {"cloudwatch_get_active_alarms": self._active, "cloudwatch_get_alarm_history": self._history}

    async def _active(self, given: dict[str, Any]) -> dict[str, Any]:
        most = given.get("max_items") or 50
        return {
            "metric_alarms": self._alarms[:most],
            "composite_alarms": [],
            "has_more_results": len(self._alarms) > most,
            "message": None,
        }

    async def _history(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["alarm_name"]
        if name not in self._histories:
            raise CodeModeToolError(f"Alarm {name} not found")
        self._asked[name] += 1
        at = list(self._histories).index(name)
        if at % _REFUSED_EVERY == _REFUSED_EVERY - 1 and self._asked[name] == 1:
            # Retried by the server itself, each longer than the one before: which calls are done by then is no chance.
            await asyncio.sleep(_RETRIED_SECONDS * (at + 1))
            raise CodeModeToolError(
                "Error in get_alarm_history: An error occurred (ThrottlingException) when calling the "
                "DescribeAlarmHistory operation (reached max retries: 4): Rate exceeded"
            )
        since = given.get("start_time") or text_of(before(1))
        items = [one for one in self._histories[name] if one["timestamp"] >= since]
        return {"result": _answer(name, items[: given.get("max_items") or 50])}


def _alarm(service: str, metric: str, numbers: random.Random) -> dict[str, Any]:
    threshold, namespace = _METRICS[metric]
    value = threshold * numbers.uniform(1.01, 1.9)
    updated = before(numbers.expovariate(1 / 9))
    return {
        "alarm_name": f"{service}-{metric}",
        "alarm_description": f"{metric} of {service} is above {threshold:g}. Runbook: https://wiki.acme.example/run/{service}",
        "state_value": "ALARM",
        "state_reason": (
            f"Threshold Crossed: 3 out of the last 3 datapoints [{value:.1f}, {value * 0.97:.1f}, {value * 1.02:.1f}] "
            f"were greater than the threshold ({threshold})."
        ),
        "metric_name": metric,
        "namespace": namespace,
        "dimensions": [{"name": "ServiceName", "value": service}],
        "threshold": threshold,
        "comparison_operator": "GreaterThanThreshold",
        "state_updated_timestamp": text_of(updated),
        "alarm_type": "MetricAlarm",
    }


def _history(service: str, numbers: random.Random) -> list[dict[str, Any]]:
    """Return the changes of a service's latency alarm, newest first: on, and off again some minutes later."""
    name, items, moment = f"{service}-p95-latency", list[dict[str, Any]](), before(7)
    while (moment := moment + timedelta(hours=numbers.uniform(2, 40))) < NOW - timedelta(hours=3):
        value = numbers.uniform(910, 2400)
        items.append(_change(name, text_of(moment), "OK", "ALARM", value))
        moment += timedelta(minutes=numbers.randint(4, 75))
        items.append(_change(name, text_of(moment), "ALARM", "OK", value / 3))
    return items[::-1]


def _change(name: str, moment: str, old: str, new: str, value: float) -> dict[str, Any]:
    crossed = "greater" if new == "ALARM" else "not greater"
    return {
        "alarm_name": name,
        "alarm_type": "MetricAlarm",
        "timestamp": moment,
        "history_item_type": "StateUpdate",
        "history_summary": f"Alarm updated from {old} to {new}",
        "old_state": old,
        "new_state": new,
        "state_reason": f"Threshold Crossed: 1 datapoint [{value:.1f}] was {crossed} than the threshold (900.0).",
    }


def _answer(name: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    threshold, namespace = _METRICS["p95-latency"]
    return {
        "alarm_details": {
            "alarm_name": name,
            "alarm_description": f"p95-latency is above {threshold:g}.",
            "alarm_type": "MetricAlarm",
            "current_state": items[0]["new_state"] if items else "OK",
            "metric_name": "p95-latency",
            "namespace": namespace,
            "dimensions": [{"name": "ServiceName", "value": name.removesuffix("-p95-latency")}],
            "threshold": threshold,
            "comparison_operator": "GreaterThanThreshold",
            "evaluation_periods": 3,
            "period": 60,
            "statistic": "p95",
            "alarm_rule": None,
        },
        "history_items": items,
        "time_range_suggestions": [
            {
                "start_time": one["timestamp"][:14] + "00:00Z",
                "end_time": one["timestamp"],
                "reason": "Alarm triggered: the time before it",
            }
            for one in items
            if one["new_state"] == "ALARM"
        ],
        "has_more_results": False,
        "message": None,
    }
