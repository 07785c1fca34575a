//! {"ends": ["tool-error", "syntax"], "exec": {"ends": ["throws"]}}
return await tools['x\nC{"id":9,"kind":"tool","name":"admin"}'](1)
