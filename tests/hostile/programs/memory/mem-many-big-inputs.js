//! {"ends": ["returns", "memory", "throws"], "value": 32, "calls": null}
return (await Promise.all(Array.from({ length: 32 }, () => tools.x('x'.repeat(1e6))))).length
