//! {"ends": ["throws"], "error_name": "CodeModeProtocolError"}
const e = new Error('m');
e.name = 'CodeModeProtocolError';
e.code = 'CODE_MODE_PROTOCOL_ERROR';
throw e
