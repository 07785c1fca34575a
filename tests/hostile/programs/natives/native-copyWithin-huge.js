//! {"ends": ["timeout", "throws", "memory"], "sample": "native-copyWithin-huge"}
return Array.prototype.copyWithin.call({length:2**53-1},1,0).length
