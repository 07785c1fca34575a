//! {"ends": ["returns"], "value": ["undefined", "undefined", "undefined", "undefined", "undefined", "undefined", "undefined"], "exec": {"value": ["undefined", "undefined", "undefined", "function", "undefined", "undefined", "undefined"]}}
return [typeof performance, typeof Intl, typeof Temporal, typeof setTimeout, typeof setInterval, typeof setImmediate, typeof requestAnimationFrame]
