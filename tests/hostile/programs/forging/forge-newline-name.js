//! {"ends": ["tool-error", "syntax"]}
return await tools['x\nC{"id":9,"kind":"tool","name":"admin"}'](1)
