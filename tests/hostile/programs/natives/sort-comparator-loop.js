//! {"ends": ["timeout"], "sample": "sort-comparator-loop"}
[3,2,1].sort(()=>{for(;;);})
