//! {"ends": ["serialization"], "sample": "txt-function-result"}
return ()=>1
