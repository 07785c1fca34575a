//! {"ends": ["deadlock"], "calls": [["x", 1]]}
await tools.x(1);
await new Promise(() => {})
