//! {"ends": ["returns"], "value": null}
let got = null;
class E extends Error {}
E.prepareStackTrace = (e, s) => { got = s; return 'x' };
Object.defineProperty(globalThis, 'prepareStackTrace', { value: (e, s) => { got = s } });
void new E('x').stack;
return got
