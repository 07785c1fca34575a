//! {"ends": ["timeout"], "sample": "native-indexOf-huge"}
return Array.prototype.indexOf.call({length:2**53-1},1)
