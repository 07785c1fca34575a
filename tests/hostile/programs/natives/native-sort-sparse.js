//! {"ends": ["timeout", "throws", "returns", "memory"], "sample": "native-sort-sparse"}
const a=[];a.length=2**32-1;a.sort();return 1
