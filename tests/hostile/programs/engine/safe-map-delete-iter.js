//! {"ends": ["returns", "timeout"], "sample": "safe-map-delete-iter"}
const m=new Map([[1,1],[2,2],[3,3]]);let n=0;m.forEach((v,k)=>{m.delete(k);m.set(k+1,v);if(n++>1000)m.clear()});return n
