"""Tools under their names, in an order. Knows nothing of searching."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...signatures.described_tool import DescribedTool


class NamedTools:
    """An unchanging list of names and tools.

    Kept apart: a pair for each of thousands of tools is what the garbage collector goes through, with the loop held. A
    tuple of texts it lets go.
    """

    def __init__(self, tools: Iterable[tuple[str, DescribedTool]]) -> None:
        names: list[str] = []
        self.tools: list[DescribedTool] = []
        for name, tool in tools:
            names.append(name)
            self.tools.append(tool)
        self.names = tuple(names)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str, DescribedTool]]:
        return zip(self.names, self.tools, strict=True)


def named_tools(tools: Iterable[tuple[str, DescribedTool]]) -> NamedTools:
    """Return these tools as they are kept: themselves, where they are already."""
    return tools if isinstance(tools, NamedTools) else NamedTools(tools)
