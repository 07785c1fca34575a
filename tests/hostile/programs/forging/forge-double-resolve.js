//! {"ends": ["returns"], "sample": "forge-double-resolve", "calls": [["x", 20], ["x", 21]], "value": [[21], [20]]}
const p=tools.x(20);const q=tools.x(21);return [await q,await p]
