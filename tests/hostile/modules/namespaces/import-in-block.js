//! {"codes": ["SYNTAX_ERROR"]}
if (true) { import { x } from '@codemode/servers/host'; }
