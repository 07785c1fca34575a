//! {"ends": ["throws", "returns", "memory"], "sample": "rec-fromCharCode"}
return String.fromCharCode.apply(null,new Uint16Array(2e5)).length
