"""A tool that only tells about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PlainTool:
    name: str
    description: str = ""
    input_json_schema: Any = None
    output_json_schema: Any = None
    input_examples: tuple[Any, ...] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)


def returning(schema: Any, **more: Any) -> PlainTool:
    return PlainTool("it", output_json_schema=schema, **more)
