//! {"ends": ["throws"], "error_name": "Mine"}
class MyError extends Error { get name() { return 'Mine' } }
throw new MyError('x')
