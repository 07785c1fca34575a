"""Links between the pages lead somewhere: the files are there, and so are the headings."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from suite import each_row

TREE = Path(__file__).parents[2]
PAGES = sorted(
    [
        *TREE.glob("*.md"),
        *(TREE / "docs").rglob("*.md"),
        TREE / "benchmarks" / "README.md",
        *(TREE / "integrations").glob("*.md"),
        *(TREE / "integrations").glob("*/*.md"),
    ]
)
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def links(page: Path) -> list[str]:
    found = _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub gives a page's headings."""
    seen: Counter[str] = Counter()
    found: list[str] = []
    for heading in _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", heading).lower()).replace(" ", "-")
        found.append(f"{words}-{seen[words]}" if seen[words] else words)
        seen[words] += 1
    return frozenset(found)


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(TREE) or not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))


@each_row("page", PAGES, ids=[str(page.relative_to(TREE)) for page in PAGES])
def test_every_link_between_pages_leads_somewhere(page: Path):
    assert [link for link in links(page) if not leads_somewhere(page, link)] == []


def test_the_check_sees_what_leads_nowhere(tmp_path: Path):
    page = TREE / "README.md"
    assert leads_somewhere(page, "SECURITY.md#reporting")
    assert not leads_somewhere(page, "SECURITY.md#no-such-heading")
    assert not leads_somewhere(page, "NO_SUCH_PAGE.md")
    assert not leads_somewhere(page, "../outside.md")
    other = tmp_path / "page.md"
    other.write_text(
        "# One *thing*, `two`\n## Again\n## Again\n```\n# no heading [no](link)\n```\n[a](b.md#c) [x](https://y)"
    )
    assert anchors(other) == {"one-thing-two", "again", "again-1"}
    assert links(other) == ["b.md#c"]


def test_every_page_of_docs_can_be_reached_from_the_readme():
    reached, left = set[Path](), [TREE / "README.md"]
    while left:
        page = left.pop()
        if page not in reached:
            reached.add(page)
            targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
            left += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert [page for page in PAGES if page not in reached] == []
