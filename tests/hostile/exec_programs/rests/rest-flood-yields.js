//! {"ends": ["returns", "throws", "bridge-limit", "timeout"], "timeout_ms": 3000}
for (let i = 0; i < 2000; i++) yield_control();
return 1
