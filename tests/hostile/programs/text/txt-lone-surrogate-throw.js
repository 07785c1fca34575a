//! {"ends": ["throws"], "sample": "txt-lone-surrogate-throw"}
throw '\ud800'
