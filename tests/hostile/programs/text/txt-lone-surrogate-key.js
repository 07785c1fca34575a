//! {"ends": ["returns"], "value": {"\ufffd": "\ufffd"}}
return { '\ud800': '\udc00' }
