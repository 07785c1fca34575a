//! {"ends": ["returns"], "value": ["refused", "TypeError"]}
try {
  const v = await (globalThis.eval('1'));
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
