//! {"ends": ["returns"]}
for (const m of ['map', 'filter', 'forEach', 'find', 'findLast', 'some', 'every', 'reduce', 'reduceRight']) { const t = new Uint8Array(1000); try { t[m](() => { try { t.buffer.transfer() } catch {} return 1 }) } catch {} }
return 1
