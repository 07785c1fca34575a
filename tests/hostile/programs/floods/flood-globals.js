//! {"ends": ["returns"], "value": 1}
for (let i = 0; i < 1e4; i++) globalThis['g' + i] = 1;
return 1
