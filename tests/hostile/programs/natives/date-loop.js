//! {"ends": ["timeout"], "sample": "date-loop"}
let n=0;for(;;)n+=new Date(2020,1,1,n%24).toString().length
