//! {"ends": ["returns"], "value": ["undefined", "undefined"]}
return [typeof JSON.rawJSON, typeof JSON.isRawJSON]
