//! {"ends": ["timeout", "returns"], "sample": "native-lastIndexOf-sparse"}
const a=[];a.length=2**32-1;return a.lastIndexOf(1)
