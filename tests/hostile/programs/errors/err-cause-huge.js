//! {"ends": ["throws"]}
throw new Error('x', { cause: 'c'.repeat(1e6) })
