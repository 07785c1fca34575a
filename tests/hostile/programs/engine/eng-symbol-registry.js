//! {"ends": ["returns"]}
for (let i = 0; i < 1e5; i++) Symbol.for('k' + i);
return Symbol.keyFor(Symbol.for('k1'))
