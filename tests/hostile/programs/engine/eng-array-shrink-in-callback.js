//! {"ends": ["returns", "memory", "throws"]}
for (const m of ['map', 'filter', 'forEach', 'find', 'findLast', 'some', 'every', 'reduce', 'reduceRight', 'flatMap', 'sort', 'toSorted', 'findIndex']) { const a = Array.from({ length: 1000 }, (_, i) => ({ i })); try { a[m](() => { a.length = 0; a.push({}); return 1 }) } catch {} }
return 1
