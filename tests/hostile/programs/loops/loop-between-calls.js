//! {"ends": ["timeout"], "calls": [["x", 1]]}
await tools.x(1);
for (;;);
