"""The operations of an OpenAPI document as tools. Needs the extra ``openapi``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..host.imports import late_names

if TYPE_CHECKING:
    from .operations import Operation
    from .spec import Spec, SpecError, load_spec
    from .tools import OpenApiTools, openapi_tools

__all__ = ["OpenApiTools", "Operation", "Spec", "SpecError", "load_spec", "openapi_tools"]

# Where each of them lives; the imports above tell type checkers the same.
_LATE = {
    "operations": "Operation",
    "spec": "Spec SpecError load_spec",
    "tools": "OpenApiTools openapi_tools",
}
__getattr__ = late_names(__name__, _LATE)
