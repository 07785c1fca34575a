//! {"ends": ["memory", "returns", "throws", "engine", "syntax"], "stack_kib": 16, "calls": null}
return [await tools.x(1)]
