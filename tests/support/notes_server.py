"""An MCP server on stdio that keeps notes: tools, resources and prompts. Started by `stdio_servers`."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("Team Notes", version="0.9")
_notes = {"plan": "Swim on Monday.", "list": "Milk, bread."}


@server.tool(name="search-notes", annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def search_notes(words: str) -> str:
    """Find notes that hold these words."""
    return ", ".join(name for name, text in _notes.items() if words.lower() in text.lower())


@server.tool(name="add_note")
def add_note(name: str, text: str) -> dict[str, int | str]:
    """Keep a note under a name."""
    _notes[name] = text
    return {"name": name, "notes": len(_notes)}


@server.resource("notes://all", name="all", description="The names of all notes", mime_type="text/plain")
def all_notes() -> str:
    """Return the names of all notes."""
    return ", ".join(_notes)


@server.resource("notes://one/{name}", name="one", description="One note")
def one_note(name: str) -> str:
    """Return a note."""
    return _notes[name]


@server.prompt(name="summarize", description="Ask for a summary of a note")
def summarize(name: str, style: str = "short") -> str:
    """Return what a model is asked."""
    return f"Make a {style} summary of: {_notes[name]}"


if __name__ == "__main__":
    server.run("stdio")
