//! {"ends": ["returns"]}
try { Error.prototype.message = 'p' } catch (e) { return e.name }
return 'silent'
