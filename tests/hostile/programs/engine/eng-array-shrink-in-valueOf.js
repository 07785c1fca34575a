//! {"ends": ["returns"]}
for (const m of ['splice', 'fill', 'copyWithin', 'slice', 'indexOf', 'lastIndexOf', 'includes', 'with', 'toSpliced', 'at', 'flat', 'concat', 'join']) { const a = Array.from({ length: 1000 }, (_, i) => ({ i })); const v = { valueOf() { a.length = 0; return 5 }, toString() { a.length = 0; return 'x' } }; try { a[m](v, v, v) } catch {} }
return 1
