"""Prints what stops native code in a worker, with the system call filter and without it: run this file.

Without the filter each attempt is made for real, by the unprivileged user that the other layers leave.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from native_attempts import NAMES, _new, try_all
from test_lockdown import SECOND_LINE, landlock_of, report_of

ESCAPED = Path(_new.value.decode())


def counted(skip_layers: tuple[str, ...]) -> tuple[Counter[str], list[str]]:
    """How attempts ended, and which were allowed."""
    outcomes = {name: end_of(skip_layers, name) for name in NAMES}
    kinds = Counter("refused" if end.startswith("errno") else end for end in outcomes.values())
    return kinds, [name for name, end in outcomes.items() if end in ("allowed", "waits")]


def end_of(skip_layers: tuple[str, ...], name: str) -> str:
    """What came of one attempt."""
    try:
        return try_all(skip_layers, [name])[name]
    except TimeoutError:  # the call was let through, and waits for something to read
        return "waits"
    finally:
        remove(ESCAPED)


def remove(path: Path) -> None:
    """Remove what an attempt has made, a file or a directory."""
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)


def main() -> None:
    """Print the table."""
    print(f"{len(NAMES)} native attempts; Landlock ABI {landlock_of(report_of())}")
    for skipped in ((), ("seccomp",), ("seccomp", "landlock"), ("seccomp", "rlimits"), ("seccomp", "namespaces")):
        kinds, allowed = counted(skipped)
        ends = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        print(f"\nwithout {' and '.join(skipped) or 'nothing'}: {ends}")
        print(f"  allowed: {', '.join(allowed) or 'none'}")
    by_layer = Counter(SECOND_LINE.values())
    print(f"\nknown to be refused by another layer than the filter: {len(SECOND_LINE)}, {dict(by_layer)}")


if __name__ == "__main__":
    main()
