//! {"codes": ["SYNTAX_ERROR", "NOT_ANALYSABLE"]}
im\u0070ort { x } from '@codemode/servers/host';

