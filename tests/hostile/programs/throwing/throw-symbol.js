//! {"ends": ["throws"]}
throw Symbol('x')
