//! {"ends": ["returns"]}
const a = [];
Object.defineProperty(a, 'length', { writable: false });
try { a.push(1) } catch {}
try { Array.prototype.push.call({ length: 2 ** 53 - 1 }, 1) } catch (e) { return e.name }
