//! {"ends": ["serialization"]}
return JSON.parse('[{"a":'.repeat(600) + '1' + '}]'.repeat(600))
