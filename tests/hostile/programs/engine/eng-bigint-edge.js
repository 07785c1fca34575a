//! {"ends": ["returns"]}
const r = [];
for (const f of [() => BigInt.asUintN(2 ** 53 - 1, -1n), () => BigInt.asIntN(0, 5n), () => 1n << (1n << 60n), () => 1n >> -(1n << 40n), () => (-(2n ** 63n)) / -1n, () => BigInt('0x' + 'f'.repeat(1e5)) % 7n]) try { r.push(typeof f()) } catch (e) { r.push(e.name) }
return r.length
