//! {"ends": ["timeout"], "calls": [["x", 1]]}
for (;;) { try { await tools.x(1).then(() => { throw 1 }) } catch {} try { for (;;); } finally { continue } }
