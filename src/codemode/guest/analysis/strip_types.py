"""Finds the types in a program, and the TypeScript that cannot be blanked and is refused.

Loaded by path in locked workers. Knows nothing of tools, and of parsing only the shape of the nodes.
A node that the grammar could not parse is left unchanged, with everything in it: the engine reads the text next, and
reports the real mistake and not a type next to it.
"""

from __future__ import annotations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node

    from .edits import BlankedGap
    from .parse import Handler

# Tokens that would continue the previous statement if only blanks were between them.
STATEMENT_HAZARDS = frozenset(b"([`+-*/")
# The same after `x as T`, where TypeScript sees the end of the statement and JavaScript a call, an index or a tag.
CAST_HAZARDS = frozenset(b"([`")

TYPE_NODES = (
    "type_annotation",
    "type_parameters",
    "type_predicate_annotation",
    "asserts_annotation",
    "implements_clause",
)
TYPE_STATEMENTS = (
    "interface_declaration",
    "type_alias_declaration",
    "ambient_declaration",
    "function_signature",
)
TYPE_MEMBERS = ("index_signature", "abstract_method_signature", "method_signature")
# Types behind an expression (`x as T`): their parent blanks them, the walk never enters them.
TYPE_EXPRESSION_NODES = (
    "array_type",
    "conditional_type",
    "constructor_type",
    "function_type",
    "generic_type",
    "index_type_query",
    "infer_type",
    "intersection_type",
    "literal_type",
    "lookup_type",
    "nested_type_identifier",
    "object_type",
    "optional_type",
    "parenthesized_type",
    "readonly_type",
    "rest_type",
    "template_literal_type",
    "this_type",
    "tuple_type",
    "type_query",
    "union_type",
)
PARAMETER_MODIFIERS = ("accessibility_modifier", "override_modifier", "readonly")
MEMBER_MODIFIERS = (*PARAMETER_MODIFIERS, "abstract", "declare")
NAMESPACE_WRAPPERS = ("export_statement", "statement_block", "internal_module", "expression_statement")
NAMESPACE_TYPES = ("comment", "identifier", "nested_identifier", *TYPE_STATEMENTS)
NAME_TAIL = compile_lazily(rb"(?:\s*\.\s*[\w$\x80-\xff]+)+")
UNION_TAIL = compile_lazily(rb"\s*(?:\|(?![|=])|&(?![&=]))")
ANGLE_BRACKET = compile_lazily(rb"=>|<|>|\"[^\"\n]*\"|'[^'\n]*'")
# What TypeScript does not let follow type arguments in an expression.
COMPARISON_TAIL = compile_lazily(rb"=|\s*[<>+-]|[ \t]*\[")
MAX_TYPE_DEPTH = 32
MAX_GENERICS_BYTES = 1024
# As the whole name of a field these read as a modifier of the next member once the field's type is blank.
MODIFIER_LIKE_NAMES = (b"get", b"set", b"static")
# Behind these a line break cannot end a statement.
CONTINUING_ENDS = (b"=", b"(", b",", b":", b"[", b"?", b"=>")
NEWLINES = (b"\n", b"\r", b"\xe2\x80\xa8", b"\xe2\x80\xa9")

ENUM_MESSAGE = "TypeScript enums are not supported: write a plain object, e.g. const Color = { Red: 0, Green: 1 }"
NAMESPACE_MESSAGE = "TypeScript namespaces with values are not supported: write a plain object or plain declarations"
PARAMETER_PROPERTY_MESSAGE = (
    "TypeScript parameter properties are not supported: declare the field and assign it in the constructor,"
    " this.name = name"
)
UNION_OF_NAMES_MESSAGE = (
    "a union with a qualified name is not supported here: put parentheses around it, `x as (A.B.C | D)`"
)
BRACKET_LINE_MESSAGE = "a line that starts with `[` needs a `;` before it, at the end of the cast"
CAST_MESSAGE = "TypeScript angle-bracket casts are not supported: write `value as Type`"
IMPORT_EQUALS_MESSAGE = "`import name = ...` is not supported: a program has no modules; what it can call is on `tools`"
EXPORT_EQUALS_MESSAGE = "`export =` is not supported: end the program with `return value`"
MODULE_IMPORT_EQUALS_MESSAGE = '`import name = ...` is not supported: write `import * as name from "module"`'
MODULE_EXPORT_EQUALS_MESSAGE = "`export =` is not supported: write `export default value`"


class TypeStripper:
    """Collects one program's ``gaps``, the parts to blank, and its ``problems``, each (byte offset, message).

    ``is_ambiguous`` is True once something is blanked that also is valid JavaScript with another meaning: `f<T>(x)`.
    ``skipped_nodes`` are nodes that the walk did not enter; they are types only if another handler blanked them.
    """

    def __init__(self, data: bytes, gap: type[BlankedGap], *, is_module: bool = False) -> None:
        self.data = data
        self.is_ambiguous = False
        self.gaps: list[BlankedGap] = []
        self.problems: list[tuple[int, str]] = []
        self.skipped_nodes: list[Node] = []
        self._gap = gap
        self._import_equals = MODULE_IMPORT_EQUALS_MESSAGE if is_module else IMPORT_EQUALS_MESSAGE
        self._export_equals = MODULE_EXPORT_EQUALS_MESSAGE if is_module else EXPORT_EQUALS_MESSAGE

    def get_handlers_by_kind(self) -> dict[str, Handler]:
        """Handlers by node kind; each returns whether the walk enters the node."""
        return {
            **dict.fromkeys(TYPE_NODES, self._on_type),
            **dict.fromkeys((*TYPE_STATEMENTS, *TYPE_MEMBERS), self._on_type_statement),
            **dict.fromkeys((*TYPE_EXPRESSION_NODES, "ERROR"), self.skipped_nodes.append),
            **dict.fromkeys(("comment", "html_comment"), self._on_comment),
            **dict.fromkeys(("as_expression", "satisfies_expression"), self._on_cast),
            **dict.fromkeys(("non_null_expression", "variable_declarator"), self._on_type_marks),
            **dict.fromkeys(("required_parameter", "optional_parameter"), self._on_parameter),
            "type_arguments": self._on_type_arguments,
            "formal_parameters": self._on_parameters,
            "abstract_class_declaration": self._on_abstract_class,
            "class_body": self._on_class_body,
            "public_field_definition": self._on_field,
            "method_definition": self._on_method,
            "arrow_function": self._on_arrow_function,
            **dict.fromkeys(("internal_module", "module"), self._on_namespace),
            "enum_declaration": lambda node: self._add_problem(node, ENUM_MESSAGE),
            "type_assertion": lambda node: self._add_problem(node, CAST_MESSAGE),
            **dict.fromkeys(("import_require_clause", "import_alias"), self._on_import_alias),
            "export_statement": self._on_export,
        }

    def blank_type_arguments(self, places: list[tuple[int, int]]) -> None:
        """Blank type arguments that the tree does not show."""
        self.is_ambiguous = self.is_ambiguous or bool(places)
        self.gaps += [self._gap(start, end) for start, end in places]

    def is_blanked(self, at: int) -> bool:
        """Return whether what stands at a place is blanked."""
        return any(gap.start <= at < gap.end for gap in self.gaps)

    def _add_problem(self, node: Node, message: str) -> bool:
        self.problems.append((node.start_byte, message))
        return False

    def _add_gap(self, node: Node, hazards: frozenset[int] = frozenset()) -> None:
        self.gaps.append(self._gap(node.start_byte, node.end_byte, hazards=hazards))

    def _on_type(self, node: Node) -> bool:
        if not node.has_error:
            self._add_gap(node)
        return False

    def _on_type_arguments(self, node: Node) -> bool:
        """`f<T>` and `f<T>(x)`, but not the plain comparison and shift `f < n >> 1`."""
        following = self.data[node.end_byte : node.end_byte + 64]
        if COMPARISON_TAIL.match(following):
            self.skipped_nodes.append(node)
            return False
        self.is_ambiguous = True
        return self._on_type(node)

    def blank_type_statement(self, start: int, end: int) -> None:
        """Blank a statement that is only types."""
        self.gaps.append(self._gap(start, end, hazards=STATEMENT_HAZARDS))

    def blank_types(self, start: int, end: int) -> None:
        """Blank what is only types inside a statement."""
        self.gaps.append(self._gap(start, end))

    def _on_type_statement(self, node: Node) -> bool:
        if not node.has_error:
            self._add_gap(node, STATEMENT_HAZARDS)
        return False

    def _on_comment(self, node: Node) -> bool:
        self.gaps.append(self._gap(node.start_byte, node.end_byte, is_comment=True))
        return False

    def _on_cast(self, node: Node) -> bool:
        children = node.children
        keyword = next((child for child in children if child.type in ("as", "satisfies")), None)
        is_cast = children[0].text != b"new"  # `new as(x)` makes an object
        if keyword is not None and is_cast and not children[-1].has_error:
            self._report_bracket_line(children[-1])
            end = self._find_type_name_end_and_report(node.end_byte)
            self.gaps.append(self._gap(keyword.start_byte, end, hazards=CAST_HAZARDS))
        return True

    def _report_bracket_line(self, type_node: Node) -> None:
        """TypeScript ends `x as T` before a line that starts with `[`; the grammar includes that line."""
        for _ in range(MAX_TYPE_DEPTH):
            children = type_node.children
            if type_node.type in ("lookup_type", "array_type") and len(children) > 1:
                if self._has_newline(children[0].end_byte, children[1].start_byte):
                    self.problems.append((children[1].start_byte, BRACKET_LINE_MESSAGE))
                type_node = children[0]
            elif children:
                type_node = children[-1]
            else:
                return

    def _find_type_name_end_and_report(self, end: int) -> int:
        """Where a type's name ends whose last parts the grammar took for members: `(x as a.b).c` for `x as a.b.c`."""
        tail = NAME_TAIL.match(self.data, end)
        if tail is None:
            return end
        end = tail.end()
        if self.data[end : end + 1] == b"<":
            end = self._find_generics_end(end)
        if UNION_TAIL.match(self.data, end):
            self.problems.append((end, UNION_OF_NAMES_MESSAGE))
        return end

    def _find_generics_end(self, start: int) -> int:
        depth = 0
        for bracket in ANGLE_BRACKET.finditer(self.data, start, start + MAX_GENERICS_BYTES):
            depth += {b"<": 1, b">": -1}.get(bracket.group(), 0)
            if depth == 0:
                return bracket.end()
        return start

    def _on_type_marks(self, node: Node) -> bool:
        """`x!`, `x!: T` and `x?: T`."""
        for child in node.children:
            if child.type in ("!", "?"):
                self._add_gap(child)
        return True

    def _on_parameter(self, node: Node) -> bool:
        modifier = next((child for child in node.children if child.type in PARAMETER_MODIFIERS), None)
        return (
            self._on_type_marks(node) if modifier is None else self._add_problem(modifier, PARAMETER_PROPERTY_MESSAGE)
        )

    def _on_parameters(self, node: Node) -> bool:
        """A `this` parameter goes, with the comma behind it."""
        children = [child for child in node.children if child.type != "comment"]
        pattern = children[1].child_by_field_name("pattern") if len(children) > 2 else None
        if pattern is not None and pattern.type == "this":
            last = children[2] if children[2].type == "," else children[1]
            self.gaps.append(self._gap(children[1].start_byte, last.end_byte))
        return True

    def _on_abstract_class(self, node: Node) -> bool:
        for child in node.children:
            if child.type == "abstract":
                if self._ends_line(child):
                    self.skipped_nodes.append(child)  # a statement of its own
                else:
                    self._add_gap(child)
        return True

    def _on_class_body(self, node: Node) -> bool:
        """The `;` behind a member that is only types goes with it."""
        is_after_types = False
        for child in node.children:
            if child.type == ";" and is_after_types:
                self._add_gap(child, STATEMENT_HAZARDS)
            if child.type != "comment":
                is_after_types = child.type in TYPE_MEMBERS or self._is_declaration_only(child)
        return True

    def _on_field(self, node: Node) -> bool:
        if self._is_declaration_only(node):
            return self._on_type_statement(node)
        children = node.children
        self._blank_modifiers(children)
        types = [child for child in children if child.type in ("?", "!", "type_annotation")]
        name = node.child_by_field_name("name")
        is_bare = name is not None and name.text in MODIFIER_LIKE_NAMES and children[-1] in types
        for child in types:
            first = ";" if is_bare and child == types[-1] else ""
            self.gaps.append(self._gap(child.start_byte, child.end_byte, first=first))
        return True

    def _on_method(self, node: Node) -> bool:
        self._blank_modifiers(node.children)
        return self._on_type_marks(node)

    def _blank_modifiers(self, children: list[Node]) -> None:
        if any(child.is_error or child.is_missing for child in children):
            return  # `abstract = 1`: a field of that name, which the grammar does not know
        for child in children:
            if child.type in MEMBER_MODIFIERS and not self._ends_line(child):
                self._add_gap(child, STATEMENT_HAZARDS)

    def _ends_line(self, modifier: Node) -> bool:
        """A modifier stands on the line of what it modifies; before a line break the word is a name."""
        following = modifier.next_sibling
        while following is not None and following.type == "comment":
            following = following.next_sibling
        return following is not None and self._has_newline(modifier.end_byte, following.start_byte)

    def _is_declaration_only(self, member: Node) -> bool:
        if member.type != "public_field_definition" or member.has_error:
            return False
        modifiers = (child for child in member.children if child.type in ("abstract", "declare"))
        return any(not self._ends_line(word) for word in modifiers)

    def _on_arrow_function(self, node: Node) -> bool:
        """Moves a parenthesis over a line break that a blank would leave behind.

        JavaScript allows none before `=>`, and one after `return` or `async` ends the statement.
        """
        parameters = node.child_by_field_name("parameters")
        generics, returned = node.child_by_field_name("type_parameters"), node.child_by_field_name("return_type")
        if parameters is None or any(part is not None and part.has_error for part in (generics, returned)):
            return True
        if generics is not None and self._may_end_statement(generics.start_byte, parameters.start_byte):
            self.gaps.append(self._gap(generics.start_byte, parameters.start_byte + 1, first="("))
        if returned is not None and self._has_newline(parameters.end_byte, returned.end_byte):
            self.gaps.append(self._gap(parameters.end_byte - 1, returned.end_byte, last=")"))
        return True

    def _may_end_statement(self, start: int, end: int) -> bool:
        before = self.data[max(0, start - 64) : start].rstrip()
        return self._has_newline(start, end) and not before.endswith(CONTINUING_ENDS)

    def _has_newline(self, start: int, end: int) -> bool:
        return any(newline in self.data[start:end] for newline in NEWLINES)

    def _on_namespace(self, node: Node) -> bool:
        body = node.child_by_field_name("body")
        if body is not None and not contains_only_types(body):
            return self._add_problem(node, NAMESPACE_MESSAGE)
        return self._on_type_statement(node)

    def _on_export(self, node: Node) -> bool:
        if any(child.type == "=" for child in node.children):
            return self._add_problem(node, self._export_equals)
        return True

    def _on_import_alias(self, node: Node) -> bool:
        return self._add_problem(node, self._import_equals)


def contains_only_types(block: Node) -> bool:
    waiting = [block]
    while waiting:
        for child in waiting.pop().named_children:
            if child.type in NAMESPACE_WRAPPERS:
                waiting.append(child)
            elif child.type not in NAMESPACE_TYPES:
                return False
    return True
