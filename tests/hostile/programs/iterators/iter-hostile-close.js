//! {"ends": ["throws"], "error_name": "RangeError"}
const it = { next: () => ({ done: false, value: 1 }), return() { throw new TypeError('close') }, __proto__: Iterator.prototype };
for (const x of it.take(1).map(() => { throw new RangeError('map') }));
