//! {"ends": ["returns", "throws", "engine"], "stack_kib": 1, "calls": null}
return [await tools.x(1)]
