"""Installed size in addition to pydantic-ai-slim

``codemode-pydantic-ai`` and ``pydantic-ai-harness[code-mode]``, with all they require.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main  # isort: split

from installed_sizes import mib_beyond


async def answer(side: Side) -> str:
    package = "codemode-pydantic-ai" if side.is_ours else "pydantic-ai-harness[code-mode]"
    return f"{mib_beyond(package, 'pydantic-ai-slim'):.0f} MiB"


if __name__ == "__main__":
    main(answer)
