//! {"codes": [], "result": 4}
import { x } from '@codemode/servers/host';
export { x, x as default };
globalThis.__codemode_result__ = await x(4);
