//! {"codes": [], "result": 3000, "timeout_ms": 8000}
const ended = await Promise.allSettled(Array.from({ length: 3000 }, (_, i) => import('@codemode/servers/t' + i)));
globalThis.__codemode_result__ = ended.filter((one) => one.status === 'rejected').length;
