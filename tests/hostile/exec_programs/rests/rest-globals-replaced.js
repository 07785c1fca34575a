//! {"ends": ["returns", "throws"], "calls": null}
try { globalThis.yield_control = () => 1; globalThis.text = null; globalThis.tools = { x: 1 } } catch {}
await yield_control();
return await tools.y(1)
