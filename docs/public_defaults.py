"""Tell defaults in the reference by their values: how the code comes to them, by functions of its own, helps no reader.

An extension of griffe, which reads the sources for `make docs` and runs nothing: fields of dataclasses are looked up.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields
from importlib import import_module
from typing import Any

import griffe

_HIDDEN = "..."
_PRIVATE = re.compile(r"(?<!\w)_\w")
_DATACLASS = "dataclasses.dataclass"
_RECORD = "codemode.records.record"  # takes the same options: griffe knows the other
_OPTION_GROUP = "codemode.options.part.option_group"  # a dataclass of keywords
_OWN_PROPERTY = "codemode.cached_property.cached_property"  # likewise


class PublicDefaults(griffe.Extension):
    """Goes over a package before its dataclasses get their signatures, which show what is found here."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go over all that is defined in it."""
        _go_over(pkg)


def _go_over(where: griffe.Module | griffe.Class) -> None:
    known = _fields(where) if isinstance(where, griffe.Class) else {}
    for name, member in list(where.members.items()):
        if isinstance(member, griffe.Alias):
            if member.target_path == _RECORD:
                where.set_member(name, griffe.Alias(name, _DATACLASS, runtime=member.runtime, parent=where))
            continue
        if name in known and name.startswith("_"):
            where.del_member(name)  # it would be a parameter
            continue
        if isinstance(member, griffe.Attribute):
            field = known.get(name)
            if field is None:
                member.value = _shown(member.value)
            elif field.init and member.value is not None:
                member.value = _default(field)
        elif isinstance(member, griffe.Function) and _is_computed_once(member):
            where.set_member(name, _property(member))
        elif isinstance(member, griffe.Function):
            for parameter in member.parameters:
                parameter.default = _shown(parameter.default)
                parameter.name = parameter.name.lstrip("_")  # so called where it is not used: nobody gives it by name
        elif isinstance(member, griffe.Module | griffe.Class):
            _declare_option_group(member)
            _go_over(member)


def _declare_option_group(group: griffe.Module | griffe.Class) -> None:
    """Call a group of options what griffe knows: a dataclass of keywords."""
    if isinstance(group, griffe.Class) and any(one.callable_path == _OPTION_GROUP for one in group.decorators):
        call = griffe.ExprCall(griffe.ExprName(_DATACLASS), [griffe.ExprKeyword("kw_only", "True")])
        group.decorators = [griffe.Decorator(call, lineno=group.lineno, endlineno=group.lineno)]


def _is_computed_once(one: griffe.Function) -> bool:
    return any(decorator.callable_path == _OWN_PROPERTY for decorator in one.decorators)


def _property(one: griffe.Function) -> griffe.Attribute:
    """Return what griffe makes of one of functools."""
    places = {"lineno": one.lineno, "endlineno": one.endlineno}
    made = griffe.Attribute(one.name, annotation=one.returns, docstring=one.docstring, runtime=one.runtime, **places)
    made.labels |= {"cached", "property"}
    return made


def _fields(of: griffe.Class) -> dict[str, Field[Any]]:
    if not any(getattr(one.value, "canonical_path", "") == _DATACLASS for one in of.decorators):
        return {}
    found: Any = import_module(of.module.path)
    for part in of.path.removeprefix(f"{of.module.path}.").split("."):
        found = getattr(found, part)
    return {field.name: field for field in fields(found)}


def _shown(value: Any) -> Any:
    return _HIDDEN if value is not None and _PRIVATE.search(str(value)) else value


def _default(field: Field[Any]) -> str:
    """Return what a field is without a value of its own, as it would be written."""
    if field.default is not MISSING:
        value = field.default
        if type(value) is int:
            return f"{value:_}"
        return _shown(repr(value) if _is_plain(value) else getattr(value, "__qualname__", _HIDDEN))
    made_by = getattr(field.default_factory, "__qualname__", _HIDDEN)
    return _HIDDEN if "<" in made_by or _PRIVATE.search(made_by) else f"{made_by}()"


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)
