//! {"ends": ["returns"], "value": ["undefined", "undefined", "undefined", "undefined", "undefined", "undefined"]}
return [typeof crypto, typeof WeakRef, typeof FinalizationRegistry, typeof gc, typeof Atomics, typeof SharedArrayBuffer]
