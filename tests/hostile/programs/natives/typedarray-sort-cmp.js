//! {"ends": ["timeout"], "sample": "typedarray-sort-cmp"}
return new Float64Array(1e6).sort((a,b)=>{for(;;);}).length
