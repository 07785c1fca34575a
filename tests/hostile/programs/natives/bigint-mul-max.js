//! {"ends": ["throws", "timeout", "memory"], "sample": "bigint-mul-max"}
let x=(1n<<524000n)-1n;let y;for(let i=0;i<1e6;i++)y=x*x;return 1
