//! {"ends": ["returns"], "sample": "leak-promise-subclass", "calls": [["x", 18]], "value": [18]}
class P2 extends Promise{};const p=tools.x(18);Object.setPrototypeOf(p,P2.prototype);return await p
