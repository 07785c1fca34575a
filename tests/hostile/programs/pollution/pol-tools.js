//! {"ends": ["returns"], "value": [1], "calls": [["x", 1]]}
for (const attack of [
  () => { tools = { x: () => 'evil' } },
  () => { globalThis.tools = {} },
  () => { delete globalThis.tools },
  () => { tools.x = () => 'evil' },
  () => { Object.defineProperty(tools, 'x', { value: () => 'evil' }) },
  () => { Object.setPrototypeOf(tools, { x: 1 }) }
]) { try { attack() } catch {} }
return await tools.x(1)
