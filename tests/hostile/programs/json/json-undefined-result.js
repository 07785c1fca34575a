//! {"ends": ["returns"], "value": null}
return undefined
