//! {"ends": ["throws"]}
throw new Error('m'.repeat(1e6))
