"""What a browser makes of a page's form: its items as they are sent, by HTML's own rules. No JavaScript."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import codemode_console
from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(codemode_console.__file__).parent / "templates"
_pages = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
_page = _pages.from_string('{% from "form.html" import fields %}<form method="post">{{ fields(form, "c1-") }}</form>')
_VOID = {"input", "br"}


def rendered(form: Any) -> str:
    return _page.render(form=form)


class Page(HTMLParser):
    """Reads a page: its controls in order, and every tag and attribute."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.controls: list[dict[str, Any]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: dict[str, Any] | None = None
        self._option: dict[str, Any] | None = None
        # Ends of lines are made one kind before anything is parsed.
        self.feed(html.replace("\r\n", "\n").replace("\r", "\n"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag == "input":
            self.controls.append({**found, "tag": tag, "value": found.get("value") or ""})
        elif tag in ("textarea", "select"):
            self._open = {**found, "tag": tag, "value": "", "options": []}
            self.controls.append(self._open)
        elif tag == "option" and self._open is not None:
            self._option = {"value": found.get("value"), "label": ""}
            self._open["options"].append(self._option)
            if "selected" in found or len(self._open["options"]) == 1:
                self._open["value"] = found.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._open is not None:
            self._open["value"] = self._open["value"].removeprefix("\n")
        if tag in ("textarea", "select"):
            self._open = None
        if tag == "option":
            self._option = None

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._option is not None:
            self._option["label"] += data
        elif self._open is not None and self._open["tag"] == "textarea":
            self._open["value"] += data

    def control(self, name: str) -> dict[str, Any]:
        (found,) = [one for one in self.controls if one.get("name") == name]
        return found

    def fill(self, name: str, text: str) -> Page:
        self.control(name)["value"] = text
        return self

    def tick(self, name: str, *, is_ticked: bool) -> Page:
        control = self.control(name)
        control.pop("checked", None)
        if is_ticked:
            control["checked"] = None
        return self

    def select(self, name: str, label: str) -> Page:
        control = self.control(name)
        (control["value"],) = [one["value"] for one in control["options"] if one["label"] == label]
        return self

    def items(self, *button: str) -> list[tuple[str, str]]:
        """Return what is sent when a button with this name and value is pressed, or one without a name."""
        sent: list[tuple[str, str]] = []
        for one in self.controls:
            if one.get("type") in ("checkbox", "radio") and "checked" not in one:
                continue
            value = one["value"]
            if one["tag"] == "input" and one.get("type") != "hidden":
                value = value.replace("\n", "").replace("\r", "")
            sent.append((_sent(one["name"]), _sent(value)))
        return [*sent, (button[0], _sent(button[1]))] if button else sent


def _sent(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def page_of(form: Any) -> Page:
    return Page(rendered(form))
