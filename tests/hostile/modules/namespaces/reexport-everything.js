//! {"codes": [], "result": 1}
export * from '@codemode/servers/host';
export * as all from '@codemode/errors';
globalThis.__codemode_result__ = 1;
