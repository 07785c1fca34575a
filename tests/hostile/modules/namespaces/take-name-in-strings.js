//! {"codes": [], "result": ["undefined", "undefined", 1]}
import { x } from '@codemode/servers/host';
const name = '$codemode';
globalThis.__codemode_result__ = [typeof globalThis[name], typeof globalThis['$codemode$'], await x(1)];
