"""The program that a worker rehearses with before there is one, and the frames that run it. Loaded by path; pure."""

from __future__ import annotations

import struct

SOURCE = "const { n }: { n: number[] } = await tools.rehearse({ n: [1, 'a'] }); return n as unknown;"
_PROGRAM = b"""{
    "js": "const { n } = await tools.rehearse({ n: [1, 'a'] }); return { n, at: Date.now() };",
    "seed": "00000000000000000000000000000000", "now_ms": 1,
    "wrapper": "sloppy", "is_rehearsal": true,
    "globals": ["tools", "console", "callTool", "getTool", "codecallContext", "mcpLog", "mcpNotify"],
    "shadowed": ["process", "globalThis"], "given": {"context": {}, "namespaces": ["rehearsed"]},
    "result": {"depth": 9, "properties": 9},
    "max_result_bytes": 1000, "max_tool_input_bytes": 1000, "max_bridge_requests": 1, "max_in_flight_bridge_requests": 1
}"""
FRAMES = (
    b"R" + struct.pack(">II", 64 << 20, 2 << 20) + _PROGRAM,
    b'D{"id":1,"now":1,"value":{"n":[1,"a"]}}',
)
