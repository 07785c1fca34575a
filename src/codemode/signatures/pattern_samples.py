"""Samples of patterns, conditions and alternatives of a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..data.narrowing import list_or_empty, mapping_or_empty
from ..data.references import LocalReferences
from .examples import MAX_SAMPLE_DEPTH, MAX_SAMPLE_PROPERTIES, Sampler, sample_value

MAX_PATTERN_CHARACTERS = 300
MAX_TEXT_CHARACTERS = 100
_MAX_DEPTH = 8
_EXTRA = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 99)
_LIKELY = "".join(map(chr, (*b"aA1-_ ", *range(33, 127))))
_ENDS_OF_NAMES = {"<": ">", "P<": ">"}
_DIGITS, _WORDS, _SPACES = [("0", "9")], [("a", "z"), ("A", "Z"), ("0", "9"), ("_", "_")], [(" ", " "), ("\t", "\r")]
_CLASSES = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_PROPERTIES = {"L": "a", "Ll": "a", "Lu": "A", "N": "1", "Nd": "1", "P": "-", "Z": " ", "Zs": " "}
_HEXADECIMAL = {"x": 2, "u": 4}

Ranges: TypeAlias = list[tuple[str, str]]


class _Unclear(Exception):  # noqa: N818 - no error: only that nothing is made of it
    """What is read is more than this reads."""


class _Part(NamedTuple):
    """Something that is repeated ``least`` to ``most`` times, None without end: a text, or the parts of a group."""

    what: str | list[_Part]
    least: int
    most: int | None


def text_for(pattern: str, least: int = 0, most: int | None = None) -> str | None:
    """Return a text of at least and at most so many characters that should match; None where that is not simple."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return None
    try:
        parts = _Reader(pattern).all()
        texts = list(_texts(parts))
    except _Unclear:
        return None
    fitting = [text for text in texts if len(text) >= least and (most is None or len(text) <= most)]
    return next((text for text in fitting if text), fitting[0] if fitting else None)


def _texts(parts: list[_Part]) -> Iterator[str]:
    for extra in _EXTRA:
        try:
            yield _built(parts, extra)
        except _Unclear:
            if extra == 0:
                raise
            return


def _built(parts: list[_Part], extra: int) -> str:
    text = ""
    for what, least, most in parts:
        times = least + extra if most is None else min(least + extra, most)
        one = what if isinstance(what, str) else _built(what, extra)
        if len(text) + len(one) * times > MAX_TEXT_CHARACTERS:
            raise _Unclear
        text += one * times
    return text


class _Reader:
    """Reads what JavaScript, Python and Rust write alike. Of alternatives it takes the first."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def all(self) -> list[_Part]:
        parts = self._alternatives(0)
        if self._at < len(self._pattern):
            raise _Unclear
        return parts

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise _Unclear
        self._at += 1
        return self._pattern[self._at - 1]

    def _takes(self, text: str) -> bool:
        is_there = self._pattern.startswith(text, self._at)
        self._at += len(text) if is_there else 0
        return is_there

    def _until(self, end: str) -> str:
        found = self._pattern.find(end, self._at)
        if found < 0:
            raise _Unclear
        text, self._at = self._pattern[self._at : found], found + len(end)
        return text

    def _alternatives(self, depth: int) -> list[_Part]:
        if depth > _MAX_DEPTH:
            raise _Unclear
        every: list[list[_Part]] = [[]]
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._takes("|"):
                every.append([])
            else:
                every[-1].append(self._part(depth))
        return every[0]

    def _part(self, depth: int) -> _Part:
        character = self._next()
        if character in "^$":
            return _Part("", 1, 1)
        if character in "*+?{":
            raise _Unclear
        return _Part(self._atom(character, depth), *self._times())

    def _atom(self, character: str, depth: int) -> str | list[_Part]:
        if character == "(":
            return self._group(depth)
        if character == "[":
            return self._one_of()
        if character == "\\":
            return self._escaped()
        return "a" if character == "." else character

    def _group(self, depth: int) -> list[_Part]:
        if self._takes("?") and not self._takes(":"):
            begins = next((one for one in _ENDS_OF_NAMES if self._takes(one)), None)
            if begins is None or not self._until(_ENDS_OF_NAMES[begins]).isidentifier():
                raise _Unclear
        parts = self._alternatives(depth + 1)
        if not self._takes(")"):
            raise _Unclear
        return parts

    def _times(self) -> tuple[int, int | None]:
        least, most = 1, 1
        if self._takes("*"):
            least, most = 0, None
        elif self._takes("+"):
            least, most = 1, None
        elif self._takes("?"):
            least, most = 0, 1
        elif self._takes("{"):
            first, comma, second = self._until("}").partition(",")
            least = _count(first)
            most = least if not comma else _count(second) if second else None
        self._takes("?")  # the shorter is as good
        return least, most

    def _escaped(self) -> str:
        character = self._next()
        if character in "bB":
            return ""
        if character.lower() in _CLASSES:
            return _one_in(_CLASSES[character.lower()], is_negated=character.isupper())
        return self._character(character)

    def _character(self, escaped: str) -> str:
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped in _HEXADECIMAL:
            digits = "".join(self._next() for _ in range(_HEXADECIMAL[escaped]))
            return chr(_count(digits, 16))
        if escaped == "p" and self._takes("{"):
            return _known(_PROPERTIES.get, self._until("}"))
        if escaped.isalnum():
            raise _Unclear
        return escaped

    def _one_of(self) -> str:
        is_negated, ranges = self._takes("^"), Ranges()
        while not self._takes("]"):
            character = self._next()
            if character == "\\" and self._pattern[self._at : self._at + 1] in _CLASSES:
                ranges += _CLASSES[self._next()]
                continue
            first = self._character(self._next()) if character == "\\" else character
            last = first
            if self._pattern[self._at : self._at + 1] == "-" and self._pattern[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._next()
                last = self._character(self._next()) if last == "\\" else last
            ranges.append((first, last))
        return _one_in(ranges, is_negated=is_negated)


def _one_in(ranges: Ranges, *, is_negated: bool) -> str:
    """Return one character that is in one of the ranges, or in none: a likely one, if there is one."""

    def fits(character: str) -> bool:
        return any(first <= character <= last for first, last in ranges) is not is_negated

    beginnings = "" if is_negated else "".join(first for first, _ in ranges)
    return _known(lambda text: next(filter(fits, text), None), _LIKELY + beginnings)


def _known(find: Callable[[str], str | None], text: str) -> str:
    found = find(text)
    if found is None:
        raise _Unclear
    return found


def _count(digits: str, base: int = 10) -> int:
    is_digits = digits.isascii() and digits.isalnum() and len(digits) <= 4
    try:
        return int(digits, base) if is_digits else _no_count()
    except ValueError:
        return _no_count()


def _no_count() -> int:
    raise _Unclear


# Several are offered, the plainest first; which of them fits, if one does, only the schema can tell.

# What of a condition a sample is made to meet: not its `if`; its `if`, as one without it does; and both.
_WAYS = (("else",), ("then",), ("if", "then"))
_MAX_VALUES = 300
_TYPES = {
    "pattern": "string",
    "minLength": "string",
    "format": "string",
    "contains": "array",
    "items": "array",
    "minItems": "array",
    "minProperties": "object",
    "properties": "object",
    "required": "object",
    "minimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}
_PARTS = frozenset({"allOf", "if", "then", "else"})


def samples(schema: Any) -> Iterator[Any]:
    """Yield values that may fit a schema. Never raises."""
    seen = [sample_value(schema)]
    yield seen[0]
    for way in _WAYS:
        try:
            made = _CloserSampler(schema, way).value(schema, 0)
        except _TooMuch:
            return
        if made not in seen:
            seen.append(made)
            yield made


class _TooMuch(Exception):  # noqa: N818 - no error: the schema has no small sample
    """A sample would be too large."""


class _CloserSampler(Sampler):
    """Makes one value that minds more keywords. ``way`` names the parts of conditions that it is to meet."""

    def __init__(self, schema: Any, way: tuple[str, ...]) -> None:
        super().__init__(LocalReferences(schema))
        self._followed = LocalReferences(schema).followed
        self._way = way
        self._left = _MAX_VALUES

    def value(self, schema: Any, depth: int) -> Any:
        self._spend()
        if not isinstance(schema, Mapping) or depth > MAX_SAMPLE_DEPTH:
            return super().value(schema, depth)
        whole = self._whole(mapping_or_empty(schema), depth)
        return whole["const"] if whole.get("const") is not None else super().value(whole, depth)

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMuch

    def _whole(self, schema: Mapping[Any, Any], depth: int) -> Mapping[Any, Any]:
        """Return a schema with what stands in its parts as if it stood in the schema itself."""
        parts = [*list_or_empty(schema.get("allOf"))[:MAX_SAMPLE_PROPERTIES]]
        if "properties" in schema or "required" in schema:
            parts += [one for key in ("anyOf", "oneOf") for one in list_or_empty(schema.get(key))[:1]]
        parts += [schema[key] for key in self._way if key in schema and "if" in schema]
        whole = {key: value for key, value in schema.items() if key not in _PARTS}
        for part in parts:
            self._spend()
            followed = mapping_or_empty(self._followed(part))
            if depth < MAX_SAMPLE_DEPTH:
                whole = _both(whole, self._whole(followed, depth + 1))
        if "type" not in whole and (implied := next((_TYPES[key] for key in _TYPES if key in whole), None)):
            whole["type"] = implied
        return whole

    def _string(self, schema: Mapping[Any, Any]) -> str:
        pattern, least, most = (schema.get(key) for key in ("pattern", "minLength", "maxLength"))
        if not isinstance(pattern, str):
            return super()._string(schema)
        text = text_for(pattern, least if isinstance(least, int) else 0, most if isinstance(most, int) else None)
        return super()._string(schema) if text is None else text

    def _array(self, schema: Mapping[Any, Any], depth: int) -> list[Any]:
        wanted = mapping_or_empty(schema.get("contains"))
        if "items" not in schema and isinstance(schema.get("minItems"), int) and "prefixItems" not in schema:
            schema = {**schema, "items": wanted or {"type": "string"}}
        made = super()._array(schema, depth)
        least = schema.get("minContains", 1)
        if not wanted or not isinstance(least, int):
            return made
        of_items = mapping_or_empty(schema.get("items"))
        found = {**schema, "items": _both(of_items, wanted), "minItems": min(least, MAX_SAMPLE_PROPERTIES)}
        beside = made[: max(len(made) - least, 0)] if isinstance(schema.get("minItems"), int) else []
        return [*super()._array({key: value for key, value in found.items() if key != "prefixItems"}, depth), *beside]

    def _object(self, schema: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        sample = super()._object(schema, depth)
        known = mapping_or_empty(schema.get("properties"))
        for name, needed in mapping_or_empty(schema.get("dependentRequired")).items():
            for one in list_or_empty(needed)[:MAX_SAMPLE_PROPERTIES] if name in sample else ():
                if isinstance(one, str) and one not in sample:
                    sample[one] = self.value(known.get(one), depth + 1)
        least = schema.get("minProperties")
        if isinstance(least, int):
            self._fill(sample, schema, min(least, MAX_SAMPLE_PROPERTIES), depth)
        return sample

    def _fill(self, sample: dict[str, Any], schema: Mapping[Any, Any], least: int, depth: int) -> None:
        """Add members that may be there until there are enough."""
        known, other = mapping_or_empty(schema.get("properties")), schema.get("additionalProperties", True)
        named = list_or_empty(mapping_or_empty(schema.get("propertyNames")).get("enum"))
        names = [*known, *(named or [f"key{number + 1}" for number in range(least)] if other is not False else [])]
        for name in names:
            if len(sample) >= least:
                return
            if isinstance(name, str) and name not in sample:
                of_others = mapping_or_empty(other) or {"type": "string"}
                sample[name] = self.value(known.get(name, of_others), depth + 1)


def _both(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the keywords of two schemas of one value; of the same keyword the second's counts."""
    both = {**one, **other}
    for key in ("properties", "dependentRequired"):
        first, second = mapping_or_empty(one.get(key)), mapping_or_empty(other.get(key))
        if first and second:
            both[key] = {**first, **{name: _of_both(first.get(name), second[name]) for name in second}}
    if "required" in one and "required" in other:
        both["required"] = [*list_or_empty(one["required"]), *list_or_empty(other["required"])]
    return both


def _of_both(first: Any, second: Any) -> Any:
    one, other = mapping_or_empty(first), mapping_or_empty(second)
    return {**one, **other} if one and other else second
