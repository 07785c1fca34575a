//! {"ends": ["throws"]}
throw new SuppressedError(1, 2, 's')
