"""Lay out the pages of the documentation site: `python docs/assemble.py FOLDER`, which `make docs` calls.

Pages keep their places in the repository, so that links between them hold on both. What a page links to and is no page
(an example, a folder) becomes one that shows it, and the reference is a page for each module with public names.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

TREE = Path(__file__).parents[1]
_SOURCES = [TREE / "src", *sorted(TREE.glob("integrations/*/src"))]
_LANGUAGES = {".py": "python", ".json": "json", ".js": "javascript", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml"}
_SHOWN_AS_THEY_ARE = (".md", ".png")
_PUBLIC_MEMBERS = {  # of classes that have others too, which only the package calls
    "codemode.WorkerPool": ("active", "is_closed", "isolation", "share", "close", "aclose"),
}
# Guides come first in the search: sources, the reference and pages for maintainers are left out.
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
_NO_GUIDES = {f"{name}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "LICENSE", "RELIABILITY")} | {
    "integrations/comparison/README.md",
    "docs/performance.md",
}
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^()\s#:]+)(?=(#[^()\s]*)?\))")


def pages() -> list[Path]:
    """Return what readers are shown, as paths in the repository."""
    found = [*TREE.glob("*.md"), *TREE.glob("docs/**/*.md"), *TREE.glob("benchmarks/*.md")]
    found += [*TREE.glob("integrations/*.md"), *TREE.glob("integrations/*/*.md")]
    return sorted(page.relative_to(TREE) for page in found)


def assemble(folder: Path) -> None:
    """Write the pages of the site into a folder, which is emptied first.

    Raises:
        SystemExit: A link leads to no file of the repository.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shown: set[Path] = set()
    for page in pages():
        text = _outside_of_fences((TREE / page).read_text(encoding="utf-8"), page, shown)
        is_guide = not page.match("docs/decisions/*") and page.parts[0] != "benchmarks" and str(page) not in _NO_GUIDES
        _write(folder / page, text if is_guide else _UNSEARCHED + text)
    shown |= {file for path in shown for file in _readable(TREE / path)}
    for path in sorted(shown):
        _write(folder / _page_of(path), _UNSEARCHED + _showing(path))
    shutil.copy(TREE / "docs" / "site.css", folder / "docs" / "site.css")
    shutil.copytree(TREE / "docs" / "images", folder / "docs" / "images", dirs_exist_ok=True)
    for module, file in modules().items():
        _write(folder / "reference" / f"{module}.md", _UNSEARCHED + reference(module, file))


def modules() -> dict[str, Path]:
    """Return the modules with public names, each with its file."""
    packages = {init.parent.name: init for source in _SOURCES for init in source.glob("codemode*/__init__.py")}
    core = packages["codemode"].parent
    return {
        **packages,
        "codemode.plugins": core / "plugins.py",
        "codemode.stores": core / "stores" / "__init__.py",
        "codemode.types": core / "types.py",
    }


def reference(module: str, file: Path) -> str:
    """Return the page of a module: its docstring, and each name as it is imported from there."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    places = {
        alias.name: f"{statement.module}.{alias.name}"
        for statement in ast.walk(tree)
        if isinstance(statement, ast.ImportFrom) and statement.level
        for alias in statement.names
        if alias.name not in ("create_lazy_getattr", "*")
    }
    entries = [
        _entry(module, name, places[name] if _is_module(file, name) else name)
        for name in sorted(places, key=lambda name: (name[0].isupper(), name))
    ]
    return "\n".join([f"# {module}\n", ast.get_docstring(tree) or "", "", *entries])


def _is_module(init: Path, name: str) -> bool:
    """Tell whether a module stands under the name: it would be shown, and what it defines has the longer one."""
    return init.name == "__init__.py" and (init.parent / f"{name}.py").exists()


def _entry(module: str, name: str, place: str) -> str:
    members = _PUBLIC_MEMBERS.get(f"{module}.{name}")
    options = "" if members is None else f"    options:\n      members: [{', '.join(members)}]\n"
    return f"::: {module}.{place}\n{options}"


def _outside_of_fences(text: str, page: Path, shown: set[Path]) -> str:
    """Return a page whose links to what is no page lead to the page that shows it; `shown` takes what that is."""

    def mended(link: re.Match[str]) -> str:
        target = (TREE / page.parent / link[1]).resolve()
        if not target.is_relative_to(TREE) or not target.exists():
            sys.exit(f"{page}: {link[1]} leads to no file of the repository")
        path = target.relative_to(TREE)
        if path.suffix in _SHOWN_AS_THEY_ARE:
            return link[1]
        if not (target / "README.md").exists():
            shown.add(path)
        return str(PurePosixPath(link[1]).parent / path.name / "README.md" if target.is_dir() else f"{link[1]}.md")

    parts: list[str] = []
    end = 0
    for fence in _FENCED.finditer(text):
        parts += [_LINK.sub(mended, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(mended, text[end:])])


def _page_of(path: Path) -> Path:
    return path / "README.md" if (TREE / path).is_dir() else path.with_name(f"{path.name}.md")


def _showing(path: Path) -> str:
    """Return the page of a file, or of a folder, which names what is in it and leads to what is shown of it."""
    at = TREE / path
    if at.is_dir():
        entries = sorted(entry for entry in at.iterdir() if not entry.name.startswith(("_", ".")))
        linked = {TREE / file for file in _readable(at)}
        lines = [_line_of(entry, is_linked=entry in linked) for entry in entries]
        return f"# {path}\n\n" + "".join(f"- {line}\n" for line in lines)
    text = at.read_text(encoding="utf-8")
    return f"# {path}\n\n````{_LANGUAGES.get(path.suffix, 'text')}\n{text}````\n"


def _readable(folder: Path) -> list[Path]:
    """Return the files of a folder whose text a reader has use for, as paths in the repository; of a file nothing."""
    if not folder.is_dir():
        return []
    return [entry.relative_to(TREE) for entry in folder.iterdir() if entry.is_file() and entry.suffix in _LANGUAGES]


def _line_of(entry: Path, *, is_linked: bool) -> str:
    name = entry.name + "/" * entry.is_dir()
    return f"[`{name}`]({name}.md)" if is_linked else f"`{name}`"


def _write(at: Path, text: str) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    assemble(Path(sys.argv[1]))
