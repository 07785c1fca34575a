//! {"ends": ["returns"], "value": ["undefined", "undefined", false]}
return [typeof Error.captureStackTrace, typeof Error.prepareStackTrace, 'stackTraceLimit' in Error]
