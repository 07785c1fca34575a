//! {"ends": ["returns"], "sample": "txt-function-result", "exec": {"ends": ["returns"]}}
return ()=>1
