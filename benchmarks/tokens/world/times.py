"""Times in other places: winter time of a few zones, so that no database of zones has to be there."""

from __future__ import annotations

from typing import Any

from codemode import CodeModeToolError

_HOURS = {"UTC": 0, "Europe/Berlin": 1, "Europe/London": 0, "America/New_York": -5, "Asia/Tokyo": 9}


class Times:
    def functions(self) -> dict[str, Any]:
        return {"time_convert_time": self._convert}

    async def _convert(self, given: dict[str, Any]) -> dict[str, Any]:
        source, target = given["source_timezone"], given["target_timezone"]
        if unknown := [zone for zone in (source, target) if zone not in _HOURS]:
            raise CodeModeToolError(f"Invalid timezone: 'No time zone found with key {unknown[0]}'")
        difference = _HOURS[target] - _HOURS[source]
        hour, minute = map(int, given["time"].split(":"))
        return {
            "source": _moment(source, hour, minute),
            "target": _moment(target, hour + difference, minute),
            "time_difference": f"{difference:+.1f}h",
        }


def _moment(zone: str, hour: int, minute: int) -> dict[str, Any]:
    day = 20 + hour // 24
    return {
        "timezone": zone,
        "datetime": f"2026-11-{day}T{hour % 24:02}:{minute:02}:00{_HOURS[zone]:+03}:00",
        "day_of_week": {19: "Thursday", 20: "Friday", 21: "Saturday"}[day],
        "is_dst": False,
    }
