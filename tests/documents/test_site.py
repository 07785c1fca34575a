"""The pages make a site: each is found in it, each public name has its entry, and no link leads nowhere.

The site itself is built in the full suite alone.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).parents[2]
SITE = tomllib.loads((TREE / "zensical.toml").read_text(encoding="utf-8"))["project"]


# What a browser loads by itself, and the elements for which the theme's scripts load something from elsewhere.
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*>"
    r"|<link\b[^>]*\brel=\"?(?!canonical|prev|next)[^>]*>"
)
AWAY = re.compile(r"=[\"']?(?:https?:)?//")
LOADS_MORE = re.compile(r"<[^>]*(?:class=\"[^\"]*\b(?:mermaid|glightbox|pyodide)\b|data-md-component=\"source\")[^>]*>")


def named(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for place in entry.values():
            yield from [place] if isinstance(place, str) else named(place)


MODULES = [place.removeprefix("reference/")[:-3] for place in named(SITE["nav"]) if place.startswith("reference/")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the pages that the site is built from."""
    pages = tmp_path_factory.mktemp("site") / SITE["docs_dir"]
    command = [sys.executable, TREE / "docs" / "assemble.py", pages]
    subprocess.run(command, check=True, timeout=600)
    return pages


@pytest.fixture(scope="module")
def site(pages: Path) -> Path:
    """Return the folder of the site, built strictly: a link that leads nowhere fails."""
    folder = pages.parents[len(Path(SITE["docs_dir"]).parts) - 1]
    shutil.copy(TREE / "zensical.toml", folder)
    for sources in ("src", "integrations", "docs"):
        (folder / sources).symlink_to(TREE / sources)
    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / SITE["site_dir"]


def test_each_page_of_the_repository_has_its_place(pages: Path):
    places = set(named(SITE["nav"]))
    assert {place for place in places if not (pages / place).exists()} == set()
    expected = {*pages.glob("*.md"), *pages.glob("docs/*.md"), *pages.glob("reference/*.md")}
    expected |= {*pages.glob("integrations/*/README.md"), *pages.glob("integrations/*/GUIDE.md")}
    assert {str(page.relative_to(pages)) for page in expected} - places == {"LICENSE.md"}


def anchors(site: Path, module: str) -> set[str]:
    """Return what can be linked to of a module's page, without the module's name."""
    text = (site / "reference" / module / "index.html").read_text(encoding="utf-8")
    return {found.removeprefix(f"{module}.") for found in re.findall(r'\bid="(codemode\w*\.[^"]*)"', text)}


@pytest.mark.full
@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_has_an_entry_and_nothing_else_has(site: Path, module: str):
    entries = {anchor.partition(".")[0] for anchor in anchors(site, module)}
    assert entries == {*import_module(module).__all__}


@pytest.mark.full
def test_of_a_pool_only_what_is_public_is_shown(site: Path):
    members = {one.partition(".")[2] for one in anchors(site, "codemode") if one.startswith("WorkerPool.")}
    assert members == {"active", "is_closed", "isolation", "share", "close", "aclose"}


@pytest.mark.full
@pytest.mark.parametrize("module", MODULES)
def test_the_reference_names_nothing_private(site: Path, module: str):
    page = (site / "reference" / module / "index.html").read_text(encoding="utf-8")
    text = unescape(re.sub(r"<[^>]+>", "", page))
    assert sorted(set(re.findall(r"(?<![\w.])_[A-Za-z]\w+", text))) == []


@pytest.mark.full
def test_no_page_asks_another_site_for_anything(site: Path):
    asked: set[str] = set()
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        asked |= {tag for tag in LOADED.findall(text) if AWAY.search(tag)}
        asked |= set(LOADS_MORE.findall(text))
    for style in site.rglob("*.css"):
        asked |= set(re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", style.read_text(encoding="utf-8")))
    assert sorted(asked) == []


@pytest.mark.full
def test_what_a_page_links_to_is_shown(site: Path):
    shown = site / "examples" / "triage.py" / "index.html"
    assert "asyncio" in shown.read_text(encoding="utf-8")


SEARCHES = {
    "approve": "docs/approvals",
    "install": "docs/quickstart/",
    "langchain": "integrations/langchain/",
    "timeout": "docs/options/",
}


def best_page(items: list[dict[str, Any]], word: str) -> str:
    """Return the page that a search shows first: words in titles count more than words in the text."""
    scores: dict[str, float] = {}
    for item in items:
        page = item["location"].partition("#")[0]
        in_title, in_text = (len(re.findall(word, item[part], re.IGNORECASE)) for part in ("title", "text"))
        weight = 1000 if item["level"] == 1 else 100
        scores[page] = scores.get(page, 0) + weight * min(in_title, 1) + in_text
    return max(scores, key=lambda page: scores[page])


@pytest.mark.full
def test_the_search_finds_guides_first_and_is_small(site: Path):
    index = site / "search.json"
    items = json.loads(index.read_text(encoding="utf-8"))["items"]
    assert index.stat().st_size < 500_000
    assert [item for item in items if re.match("reference/|examples/|benchmarks/", item["location"])] == []
    assert [word for word, page in SEARCHES.items() if not best_page(items, word).startswith(page)] == []


def test_a_folder_leads_to_what_is_in_it(pages: Path):
    listed = (pages / "examples" / "README.md").read_text(encoding="utf-8")
    examples = {path.name for path in (TREE / "examples").glob("*.py")}
    assert {name for name in examples if f"({name}.md)" not in listed} == set()
