//! {"ends": ["returns"], "sample": "txt-date-invalid", "value": null}
return new Date(NaN)
