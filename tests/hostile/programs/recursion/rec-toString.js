//! {"ends": ["throws", "memory"], "sample": "rec-toString"}
const o={toString(){return ''+this}};return ''+o
