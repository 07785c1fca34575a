//! {"ends": ["timeout"], "sample": "string-repeat-loop"}
let n=0;for(;;)n+='ab'.repeat(1e6).length
