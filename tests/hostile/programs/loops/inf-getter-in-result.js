//! {"ends": ["timeout"], "sample": "inf-getter-in-result"}
return {get a(){for(;;);}}
