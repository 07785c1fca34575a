"""Names that no namespace may take: keywords, and what the global object of every program has already."""

from __future__ import annotations

KEYWORDS = frozenset(
    """
    arguments async await break case catch class const continue debugger default delete do else enum eval export extends
    false finally for function if implements import in instanceof interface let new null of package private protected
    public return static super switch this throw true try typeof undefined var void while with yield
    """.split()  # noqa: SIM905 - a list of so many words is read as a text
)
RESERVED_PREFIXES = ("__openclaw", "__codemode")
OWN_GLOBALS = frozenset(
    {
        *("tools", "ALL_TOOLS", "MCP", "API", "namespaces", "console", "text", "json", "yield_control", "content"),
        *("setTimeout", "clearTimeout", "fetch", "state"),
    }
)
ENGINE_GLOBALS = frozenset(
    """
    AggregateError AsyncDisposableStack DisposableStack SuppressedError atob btoa structuredClone
    Array ArrayBuffer AsyncFunction Atomics BigInt BigInt64Array BigUint64Array Boolean DOMException
    DataView Date Error EvalError FinalizationRegistry Float16Array Float32Array Float64Array Function Infinity
    Int16Array Int32Array Int8Array InternalError Iterator JSON Map Math NaN Number Object Promise Proxy RangeError
    ReferenceError Reflect RegExp Set SharedArrayBuffer String Symbol SyntaxError TypeError URIError Uint16Array
    Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet decodeURI decodeURIComponent encodeURI
    encodeURIComponent escape eval globalThis isFinite isNaN navigator parseFloat parseInt performance
    queueMicrotask undefined unescape
    """.split()  # noqa: SIM905 - as above
)
RESERVED_GLOBALS = OWN_GLOBALS | ENGINE_GLOBALS
