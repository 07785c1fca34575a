//! {"ends": ["syntax"], "calls": [], "console": []}
});
globalThis.pwn = 1;
Object.prototype.pwn = 1;
(async function () {
