//! {"ends": ["throws"], "sample": "flood-error-name"}
const e=new Error();e.name='n'.repeat(5e6);throw e
