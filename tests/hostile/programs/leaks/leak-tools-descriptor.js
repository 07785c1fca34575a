//! {"ends": ["returns"], "value": [true, true]}
return [Object.getOwnPropertyDescriptor(tools, 'x') === undefined, Object.getPrototypeOf(tools.x) === null]
