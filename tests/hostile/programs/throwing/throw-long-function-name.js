//! {"ends": ["throws"]}
const o = { ['f'.repeat(1e6)]() { throw new Error('x') } };
o['f'.repeat(1e6)]()
