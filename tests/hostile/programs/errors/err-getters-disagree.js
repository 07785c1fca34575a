//! {"ends": ["throws"], "error_name": "A"}
let n = 0;
throw { get name() { return n++ ? 'B' : 'A' }, message: 'm' }
