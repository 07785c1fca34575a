//! {"codes": ["SYNTAX_ERROR"], "calls": []}
import { x } from '@codemode/servers/host';
const x = 1;
