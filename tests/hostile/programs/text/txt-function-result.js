//! {"ends": ["serialization"], "sample": "txt-function-result", "exec": {"ends": ["returns"]}}
return ()=>1
