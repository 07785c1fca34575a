//! {"ends": ["timeout"], "sample": "decodeURI-loop"}
const s='%41'.repeat(1e6);let n=0;for(;;)n+=decodeURIComponent(s).length
