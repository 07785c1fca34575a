//! {"ends": ["returns"], "value": 1, "calls": null, "exec": {"ends": ["returns", "throws"]}}
for (let i = 0; i < 20; i++) await tools.x('x'.repeat(5e5));
return 1
