//! {"ends": ["returns"], "value": [false, true], "exec": {"value": [false, false]}}
return [Object.getOwnPropertyDescriptor(tools, 'x') === undefined, Object.getPrototypeOf(tools.x) === null]
