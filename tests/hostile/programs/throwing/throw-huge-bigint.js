//! {"ends": ["throws"]}
throw 1n << 500000n
