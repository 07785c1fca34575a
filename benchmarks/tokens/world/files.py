"""Files of the team, in memory: a changelog, a count of the warehouse, and three post-mortems."""

from __future__ import annotations

from typing import Any

from codemode import CodeModeToolError

from .database import stock
from .people import LOGINS, SERVICES, before, seeded, text_of

_CAUSES = (
    "a connection pool that was half as large as before",
    "a certificate that had been renewed and not deployed",
    "a migration that locked the table of orders",
)
_TIMES = (("14:02", "14:51", 49), ("03:17", "05:40", 143), ("11:30", "11:58", 28))
_DOCUMENT = """\
# {service}: {minutes} minutes of errors

From {start} to {end} UTC.

At {start} the alarm of {service} went off. {who} was on call and looked at the dashboards within four minutes.
Requests took ten times as long as usual, and one in eight failed. Restarting single tasks helped for a few minutes
each time, which made the real cause harder to see, for the graphs looked better after each restart.

The cause was {cause}. It had gone out two days earlier, behind a flag that was off, and was switched on for all
customers on the morning of that day. No test covers this path with production's number of connections, and the canary
had run at night, when there is a tenth of the traffic, so that nothing was seen before the switch.

What went well: the runbook was found at once, the status page was updated after nine minutes, and support had a text to
send. What did not: two people changed the same setting at the same time, the flag was not named in the release notes,
and the rollback took longer than it should, because an image had been removed by the retention.

Customers saw errors when they paid; {orders} orders had to be repeated by hand. No data was lost. Twelve of the
enterprise customers were told by their account managers on the same day, and the others by the status page.

Actions: add the number of connections to the canary's checks ({who}, two weeks); name flags in release notes (all
teams, from now on); keep images of the last ten releases (platform, one week); practise the rollback once a quarter
(all on-call engineers, first time in December).
"""
_CHANGES = (
    "Fixed rounding of totals in yen.",
    "Carts keep their order.",
    "Payments are retried once.",
    "Faster search.",
)


class Files:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {
            "/srv/shop/CHANGELOG.md": _changelog(),
            "/srv/shop/warehouse/count-2026-11-19.csv": _count(),
            **{f"/srv/shop/post-mortems/2026-{month:02}.md": _post_mortem(at) for at, month in enumerate((8, 9, 10))},
        }

    def functions(self) -> dict[str, Any]:
        return {
            "filesystem_read_text_file": self._read_file,
            "filesystem_read_multiple_files": self._read_many,
            "filesystem_write_file": self._write,
        }

    async def _read_file(self, given: dict[str, Any]) -> dict[str, str]:
        lines = self._text(given["path"]).splitlines()
        if "head" in given:
            lines = lines[: given["head"]]
        return {"content": "\n".join(lines)}

    async def _read_many(self, given: dict[str, Any]) -> dict[str, str]:
        return {"content": "\n---\n".join(f"{path}:\n{self._text(path)}\n" for path in given["paths"])}

    async def _write(self, given: dict[str, Any]) -> dict[str, str]:
        self._texts[given["path"]] = given["content"]
        return {"content": f"Successfully wrote to {given['path']}"}

    def _text(self, path: str) -> str:
        if path not in self._texts:
            raise CodeModeToolError(f"ENOENT: no such file or directory, open '{path}'")
        return self._texts[path]


def _count() -> str:
    """Return what was counted in the warehouse: some products are not what the database says."""
    numbers, lines = seeded("count"), ["sku,shelf,counted,counted_by,counted_at"]
    for sku, _, on_hand, _ in stock():
        wrong = numbers.choice([-12, -4, -1, 2, 30]) if numbers.random() < 0.08 else 0
        moment = text_of(before(numbers.uniform(0.4, 1.4)))
        shelf = f"{numbers.choice('ABCDEF')}{numbers.randint(1, 40):02}"
        lines.append(f"{sku},{shelf},{max(0, on_hand + wrong)},{numbers.choice(LOGINS)},{moment}")
    return "\n".join(lines)


def _changelog() -> str:
    numbers, parts = seeded("changelog"), ["# Changes", ""]
    for at in range(30):
        parts += [f"## 4.{31 - at}.0 ({text_of(before(3 + 7 * at))[:10]})", ""]
        parts += [f"- {line}" for line in numbers.sample(_CHANGES, 3)] + [""]
    return "\n".join(parts)


def _post_mortem(at: int) -> str:
    start, end, minutes = _TIMES[at]
    return _DOCUMENT.format(
        start=start,
        end=end,
        minutes=minutes,
        service=SERVICES[at],
        who=LOGINS[at],
        cause=_CAUSES[at],
        orders=37 * (at + 2),
    )
