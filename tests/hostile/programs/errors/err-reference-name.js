//! {"ends": ["throws"], "error_name": "ReferenceError"}
return undefinedVariableWithAName
