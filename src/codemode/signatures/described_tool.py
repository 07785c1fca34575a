"""A described tool: what one tells about itself to be declared. Knows nothing of how it is executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class DescribedTool(Protocol):
    """The readable side of a tool: its names, schemas, examples and MCP-style annotations."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_json_schema(self) -> dict[str, Any] | bool | None: ...

    @property
    def output_json_schema(self) -> dict[str, Any] | bool | None: ...

    @property
    def input_examples(self) -> tuple[Any, ...]: ...

    @property
    def annotations(self) -> Mapping[str, Any]: ...
