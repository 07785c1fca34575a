//! {"ends": ["returns"], "value": ["refused", "ReferenceError"], "exec": {"value": ["refused", "TypeError"]}}
try {
  const v = await (setTimeout('1', 0));
  return ['RAN', String(v)];
} catch (e) {
  return ['refused', e.name];
}
