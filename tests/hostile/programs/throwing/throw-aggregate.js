//! {"ends": ["throws"], "error_name": "AggregateError"}
throw new AggregateError([new Error('a'), tools], 'many')
