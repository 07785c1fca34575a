//! {"ends": ["syntax"], "calls": [], "console": []}
});
throw { name: 'CodeModeTimeoutError', message: 'm', code: 'CODE_MODE_TIMEOUT' };
(async function () {
