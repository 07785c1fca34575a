"""Installed size in addition to langchain and langgraph

``codemode-langchain[agents]`` and ``langchain-quickjs``, with all they require.
"""

from __future__ import annotations

from langchain_sides import Side, main  # isort: split

from installed_sizes import mib_beyond


async def answer(side: Side) -> str:
    return f"{mib_beyond('codemode-langchain[agents]' if side.is_ours else 'langchain-quickjs', 'langchain'):.0f} MiB"


if __name__ == "__main__":
    main(answer)
