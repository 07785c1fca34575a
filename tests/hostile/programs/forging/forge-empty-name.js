//! {"ends": ["throws"]}
return await tools['']('x')
