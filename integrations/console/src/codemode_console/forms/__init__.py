"""Forms made of JSON Schemas: fields of a value, and the value that a person made of them. No page, no store."""

from __future__ import annotations

from .model import ABSENT, Choice, Edited, Field, Form, Kind, MalformedForm, State, is_of_form
from .reading import MOST_EDITABLE_CHARACTERS, fields_of, read_form

__all__ = [
    "ABSENT",
    "MOST_EDITABLE_CHARACTERS",
    "Choice",
    "Edited",
    "Field",
    "Form",
    "Kind",
    "MalformedForm",
    "State",
    "fields_of",
    "is_of_form",
    "read_form",
]
