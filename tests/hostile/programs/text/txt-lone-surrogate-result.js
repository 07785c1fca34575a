//! {"ends": ["returns"], "sample": "txt-lone-surrogate-result", "value": "\ufffd"}
return '\ud800'
