//! {"ends": ["returns"], "value": 4}
let refused = 0;
for (const path of ['../../etc/passwd', '/etc/passwd', 'mcp/__proto__.d.ts', 'mcp/constructor'])
  try { await API.read(path) } catch { refused++ }
return refused
