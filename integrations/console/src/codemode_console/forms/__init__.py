"""Forms for JSON values under a JSON Schema."""

from __future__ import annotations

from .model import (
    ABSENT,
    Choice,
    ControlKind,
    Field,
    FieldState,
    Form,
    FormResult,
    MalformedFormError,
    is_form_item_name,
)
from .parser import MAX_EDITABLE_CHARACTERS, create_form, read_form

__all__ = [
    "ABSENT",
    "MAX_EDITABLE_CHARACTERS",
    "Choice",
    "ControlKind",
    "Field",
    "FieldState",
    "Form",
    "FormResult",
    "MalformedFormError",
    "create_form",
    "is_form_item_name",
    "read_form",
]
