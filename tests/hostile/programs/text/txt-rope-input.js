//! {"ends": ["returns"], "value": 18000, "calls": null}
let s = 'x'.repeat(9000);
return (await tools.x(s + s))[0].length
