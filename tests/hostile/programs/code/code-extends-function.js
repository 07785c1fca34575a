//! {"ends": ["returns"], "value": ["refused", "EvalError"]}
try {
  const v = await (new (class extends Function { constructor() { super('return 1') } })()());
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
