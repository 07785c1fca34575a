//! {"ends": ["returns"], "sample": "pow-atomics", "value": ["undefined", "undefined", "undefined", "undefined", "undefined", "undefined"]}
return [typeof SharedArrayBuffer,typeof Atomics,typeof WeakRef,typeof FinalizationRegistry,typeof performance,typeof gc]
