"""The programs of a worker's warm-up, and the frames that run them. Loaded by path; pure."""

from __future__ import annotations

import struct

# Common code of programs: warming up the analyser before the fork avoids copies of its pages.
FUNCTION_SOURCE = """// Add up.
const { n }: { n: number[] } = await tools.rehearse({ n: [1, 'a'] });
let sum = 0;
for (let i = 0; i < 9; i++) sum += await tools.rehearse({ n: i });
if (sum > 1) {
  const all = await Promise.all(n.map(async (one) => await tools.rehearse({ one, text: `${one}` })));
  for (const one of all) console.log(one.n, "is", !one);
}
return { n, sum } as unknown;"""
MODULE_SOURCE = """import { rehearse } from "@codemode/servers/rehearsed";
const { n }: { n: number[] } = await rehearse({ n: [1, 'a'] }); globalThis.__codemode_result__ = n as unknown;"""
_FUNCTION_CONFIG = b"""{
    "js": "const { n } = await tools.rehearse({ n: [1, 'a'] }); text(1); return { n, at: Date.now() };",
    "seed": "00000000000000000000000000000000", "now_ms": 1,
    "wrapper": "sloppy", "is_rehearsal": true,
    "globals": ["tools", "console", "callTool", "getTool", "codecallContext", "mcpLog", "mcpNotify",
        "ALL_TOOLS", "MCP", "API", "text", "json", "content", "yield_control", "setTimeout", "clearTimeout"],
    "shadowed": ["process", "globalThis"], "given": {"context": {}, "namespaces": ["rehearsed"]},
    "result": {"depth": 9, "properties": 9},
    "max_output_bytes": 1000, "says_in_text": true, "drains": true,
    "max_result_bytes": 1000, "max_tool_input_bytes": 1000, "max_bridge_requests": 1, "max_in_flight_bridge_requests": 1
}"""
_MODULE_CONFIG = """{"js":"const{0:{\\"rehearse\\":r}}=$codemode;globalThis.__codemode_result__=await r({n:[1,'a']});",
    "seed": "00000000000000000000000000000000", "now_ms": 1,
    "wrapper": "module", "globals": [%s], "console": "stable", "is_rehearsal": true,
    "given": {"module": {"prefix": 0, "take": "$codemode", "imports": ["@codemode/servers/rehearsed"],
        "servers": {"rehearsed": {"serverId": "rehearsed", "serverName": "rehearsed",
            "tools": [{"toolName": "rehearse", "exportName": "rehearse"}]}}, "all": false}},
    "max_result_bytes": 1000, "max_tool_input_bytes": 1000, "max_bridge_requests": 1, "max_in_flight_bridge_requests": 1
}"""
_SMALL_MODULE_CONFIG, _FULL_MODULE_CONFIG = (
    (_MODULE_CONFIG % names).encode()
    for names in (
        '"console", "setTimeout"',
        '"console", "URL", "URLSearchParams", "TextEncoder", "TextDecoder", "setTimeout", "clearTimeout"',
    )
)
_LIMITS_STRUCT = struct.Struct(">III?")
_UNTIMED_LIMITS = _LIMITS_STRUCT.pack(64 << 20, 2 << 20, 0, False)
_TIMED_LIMITS = _LIMITS_STRUCT.pack(64 << 20, 2 << 20, 1000, True)
_TOOL_RESULT_FRAME = b'D{"id":1,"now":1,"value":{"n":[1,"a"]}}'
_FUNCTION_FRAMES = (b"R" + _UNTIMED_LIMITS + _FUNCTION_CONFIG, _TOOL_RESULT_FRAME)


def list_analysis_modes(is_full: bool) -> tuple[int, ...]:
    """Return the analysis modes to warm up."""
    return (0, 1, 2) if is_full else (0,)


def list_program_frames(is_full: bool) -> tuple[tuple[bytes, ...], ...]:
    """The frames of each program."""
    return _FUNCTION_FRAMES, (
        b"M" + (_TIMED_LIMITS + _FULL_MODULE_CONFIG if is_full else _UNTIMED_LIMITS + _SMALL_MODULE_CONFIG),
        _TOOL_RESULT_FRAME,
    )
