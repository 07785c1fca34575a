"""What a tool without an output schema was seen to give: told in declarations, promised nowhere, checked never."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...data.narrowing import is_mapping, is_object
from ...signatures.declarations import call_types
from ...signatures.described_tool import Renamed
from ...signatures.literals import comment_line
from .listing import ModuleTool

KEY = "observed"
"""Where the ``metadata`` of a tool has it: ``{"schema": <JSON Schema>, "isText": <of the JSON in its text>}``."""

_MAX_CHARACTERS = 1_500
_GIVES = "): Promise<"


@dataclass(frozen=True)
class ObservedOutput:
    """The schema of what calls gave; with ``is_text`` each gave a text, and that is the schema of the JSON in it."""

    schema: dict[str, Any]
    is_text: bool

    def on(self, shown: Renamed) -> Renamed:
        """Return a tool as if it had declared what was observed."""
        return replace(shown, output_json_schema={"type": "string"} if self.is_text else self.schema)

    @property
    def tag(self) -> str:
        """The tag in the comment of its function."""
        if not self.is_text:
            return "@observed The type of the result is what calls gave so far; it is not promised."
        inside = Renamed("x", "", None, self.schema, (), {})
        calls, aliases = call_types([inside], has_comments=False)
        said = "anything" if aliases else calls[0].partition(_GIVES)[2].removesuffix(">")
        hint = f"The result is a text that was JSON so far: JSON.parse it. It is not promised to be {said}"
        return f"@observed {comment_line(hint, _MAX_CHARACTERS)}"


def observed_output(one: ModuleTool) -> ObservedOutput | None:
    """Return what was observed of a tool, None for one that declares its output."""
    said = one.tool.metadata.get(KEY)
    if not is_mapping(said) or one.tool.output_json_schema is not None or not is_object(said.get("schema")):
        return None
    return ObservedOutput(said["schema"], said.get("isText") is True)


def marked(call: str) -> str:
    """Return a call type whose result is marked as observed."""
    # Observed types hold no text of a server, so the last one is not within a literal.
    takes, gives, type_text = call.rpartition(_GIVES)
    return f"{takes}{gives}/* observed */ {type_text}"
