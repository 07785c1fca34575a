//! {"ends": ["returns"], "console": ["inner", "\"outer\""]}
console.log({ toJSON() { console.log('inner'); return 'outer' } });
return 1
