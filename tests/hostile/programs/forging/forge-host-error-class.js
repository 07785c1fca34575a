//! {"ends": ["throws"], "error_name": "CodeModeTimeoutError"}
throw { name: 'CodeModeTimeoutError', message: 'late', code: 'CODE_MODE_TIMEOUT' }
