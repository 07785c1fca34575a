//! {"ends": ["returns"], "sample": "det-random", "value": [true, 3, false]}
const a = [Math.random(), Math.random(), Math.random()];
return [a.every(n => n >= 0 && n < 1), new Set(a).size, Object.getOwnPropertyDescriptor(Math, 'random').writable]
