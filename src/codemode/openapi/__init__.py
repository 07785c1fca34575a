"""The operations of an OpenAPI document as tools. Needs the extra ``openapi``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..host.imports import create_lazy_getattr

if TYPE_CHECKING:
    from .operations import Operation
    from .spec import Spec, SpecError, load_spec
    from .tools import OpenApiTools, openapi_tools

__all__ = ["OpenApiTools", "Operation", "Spec", "SpecError", "load_spec", "openapi_tools"]

# The module of each name, imported when it is first used; type checkers read the imports above.
_LATE = {
    "operations": "Operation",
    "spec": "Spec SpecError load_spec",
    "tools": "OpenApiTools openapi_tools",
}
__getattr__ = create_lazy_getattr(__name__, _LATE)
