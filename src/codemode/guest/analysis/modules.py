"""Collects the imports of an ES module program: statements and calls of `import()`.

Loaded by path in locked workers. Knows no module: the host decides which exist.
"""

from __future__ import annotations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tree_sitter import Node

    from .edits import BlankedGap
    from .parse import Handler
    from .strip_types import TypeStripper

MAX_IMPORTS = 1024
MAX_NAMES = 4096
STATEMENTS = ("import_statement", "export_statement")
NAMESPACES = ("internal_module", "module")
_BLANKS = rb"(?:\s|\xe2\x80[\xa8\xa9])*"
ATTRIBUTES = compile_lazily(_BLANKS + rb"with" + _BLANKS + rb"\{[^{}]*\}[ \t]*;?")
BLANK_BYTES = b" \t\v\f\r\n"
MIN_MULTIBYTE_LEAD = 0xC0  # and above: the first byte of a character of several
# No names in strict code, though the engine takes some of them for the name of an import.
RESERVED_WORD = compile_lazily(
    "arguments|await|break|case|catch|class|const|continue|debugger|default|delete|do|else|enum|eval"
    "|export|extends|false|finally|for|function|if|implements|import|in|instanceof|interface|let|new|null"
    "|package|private|protected|public|return|static|super|switch|this|throw|true|try|typeof|var|void"
    "|while|with|yield"
)

TOO_MANY = f"a program has at most {MAX_IMPORTS} import statements and {MAX_NAMES} imported names"
LONE_SURROGATE = "the name of an export holds no lone surrogate"
STRAY_COMMA = "no name follows this comma"
NOT_A_NAME = "an import cannot be named {}: write `import {{ {} as name }}`"


class ImportBinding:
    """A name that an import statement binds: the import, the export (None: all), and its source text."""

    __slots__ = ("exported", "index", "name", "source_text")

    def __init__(self, index: int, exported: str | None, name: str, source_text: str) -> None:
        self.index, self.exported, self.name, self.source_text = index, exported, name, source_text


class ModuleStatementCollector:
    """Collects one program's imports from its nodes; places are byte offsets.

    ``gaps`` are the statements and keywords that something else stands in for. ``imports`` are ``{"from", "names":
    [[exported, local]], "at", "ats"}``, with "*" for all of a module, "" for what is only exported again, and the place
    of each name in ``ats``. ``exported_names`` are the names that the program exports of its own, as they are written.
    The types of these statements, and what is wrong with them, go to ``stripper``.
    """

    def __init__(self, clauses: Any, strip_types: Any, gap: type[BlankedGap], stripper: TypeStripper) -> None:
        self.data = b""
        self._clauses, self._strip_types, self._gap, self._stripper = clauses, strip_types, gap, stripper
        self._statement_starts: frozenset[int] = frozenset()
        self._names_left = MAX_NAMES
        self._has_too_many_imports = False
        self.gaps: list[BlankedGap] = []
        self.imports: list[dict[str, Any]] = []
        self.bindings: list[ImportBinding] = []
        self.exported_names: set[str] = set()

    def get_handlers_by_kind(self) -> dict[str, Handler]:
        """Handlers by node kind; each returns whether the walk enters the node."""
        return {"program": self._on_program, "import_statement": self._on_import, "export_statement": self._on_export}

    def _on_program(self, node: Node) -> bool:
        self._statement_starts = frozenset(child.start_byte for child in node.children if child.type in STATEMENTS)
        return True

    def _is_top_level_statement(self, node: Node) -> bool:
        """Return whether it stands where the engine takes one."""
        return node.start_byte in self._statement_starts and not node.has_error

    def _on_import(self, node: Node) -> bool:
        if not self._is_top_level_statement(node) or node.child_by_field_name("source") is None:
            return True
        end = self._find_statement_end(node)
        clause = self._read_clause_or_blank_types(node, end)
        if clause is None:
            return False
        names: list[tuple[str, str, int]] = []
        for specifier in self._strip_type_specifiers(clause):
            exported = specifier.get_imported_name()
            local = specifier.local or specifier.exported
            name = self._read_local_name_or_report(specifier, local)
            if exported is not None and name is not None:
                names.append((exported, name, specifier.start))
                binding = ImportBinding(len(self.imports), None if exported == "*" else exported, name, local.text)
                self.bindings.append(binding)
        self._add_import_and_count_limit(clause, node.start_byte, end, names)
        return False

    def _on_export(self, node: Node) -> bool:
        if not self._is_top_level_statement(node):
            return True
        declaration = node.child_by_field_name("declaration")
        if declaration is not None:
            if not self._is_types_only(declaration):
                return True
            self._stripper.blank_type_statement(node.start_byte, self._find_statement_end(node))
            return False
        has_source = node.child_by_field_name("source") is not None
        if not has_source and not any(child.type == "export_clause" for child in node.children):
            return True
        end = self._find_statement_end(node)
        clause = self._read_clause_or_blank_types(node, end)
        if clause is None:
            return False
        values = self._strip_type_specifiers(clause)
        if not has_source:
            self.exported_names.update(value.exported.text for value in values)
            return True
        names = [(name, "", value.start) for value in values if (name := value.get_imported_name()) is not None]
        self._add_import_and_count_limit(clause, node.start_byte, end, names)
        return False

    def _find_statement_end(self, node: Node) -> int:
        """Return the end of a statement; the tree may lack its attributes, or have its `;` separately."""
        end = node.end_byte
        if (
            self.data[end - 1] in BLANK_BYTES or self.data[end - 1] >= MIN_MULTIBYTE_LEAD
        ):  # of a blank that is more than one byte
            end -= 1
        attributes = ATTRIBUTES.match(self.data, end)
        return end if attributes is None else attributes.end()

    def _read_clause_or_blank_types(self, node: Node, end: int) -> Any:
        """Return the clause behind a statement's first word; None for types alone."""
        tokens = self._clauses.tokenize(self.data, node.start_byte, end)
        clause = self._clauses.parse_import_or_export_clause(tokens[1:])
        if clause.comma is not None:
            self._add_problem(clause.comma.start, STRAY_COMMA)
        if not clause.is_type:
            return clause
        self._stripper.blank_type_statement(node.start_byte, end)
        return None

    def _strip_type_specifiers(self, clause: Any) -> list[Any]:
        """The specifiers that are more than types."""
        for specifier in clause.specifiers:
            if specifier.is_type:
                self._stripper.blank_types(specifier.start, specifier.end)
        return [specifier for specifier in clause.specifiers if not specifier.is_type]

    def _read_local_name_or_report(self, specifier: Any, local: Any) -> str | None:
        """The name that an import binds; None where it can be none."""
        name = None if local.kind == "string" else local.decode_name()
        if local.kind == "string" or (name is not None and RESERVED_WORD.fullmatch(name)):
            exported = "default" if specifier.is_default else specifier.exported.text
            self._add_problem(local.start, NOT_A_NAME.format(local.text, exported))
            return None
        return name

    def _add_problem(self, at: int, message: str) -> None:
        self._stripper.problems.append((at, message))

    def _add_import_and_count_limit(self, clause: Any, start: int, end: int, names: list[tuple[str, str, int]]) -> None:
        self.gaps.append(self._gap(start, end, first=";"))
        self._names_left -= len(names)
        if self._has_too_many_imports:
            return
        if len(self.imports) == MAX_IMPORTS or self._names_left < 0:
            self._has_too_many_imports = True
            self._add_problem(start, TOO_MANY)
        for name, _, at in names:
            if self._clauses.has_lone_surrogate(name):
                self._add_problem(at, LONE_SURROGATE)
        source_name = None if clause.source is None else clause.source.decode_name()
        self.imports.append(
            {
                "from": self._clauses.replace_lone_surrogates(source_name or ""),
                "names": [[exported, local] for exported, local, _ in names],
                "at": start,
                "ats": [at for _, _, at in names],
            }
        )

    def _is_types_only(self, declaration: Node) -> bool:
        """Return whether what is exported is nothing at run time."""
        if declaration.type in NAMESPACES:
            body = declaration.child_by_field_name("body")
            return body is None or self._strip_types.contains_only_types(body)
        return declaration.type in self._strip_types.TYPE_STATEMENTS
