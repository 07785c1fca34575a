//! {"ends": ["returns", "memory", "engine"], "memory_mib": 1, "calls": null}
return [await tools.x(1)]
