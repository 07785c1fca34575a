//! {"ends": ["timeout", "throws"], "sample": "string-normalize"}
let n=0;for(;;)n+='\u1e9b\u0323'.repeat(1e6).normalize('NFKD').length
