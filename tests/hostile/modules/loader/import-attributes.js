//! {"codes": ["IMPORT_FAILURE"]}
import x from './x.json' with { type: 'json' };
