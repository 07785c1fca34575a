//! {"codes": ["SYNTAX_ERROR", "NOT_ANALYSABLE"]}
import source x from '@codemode/errors';
