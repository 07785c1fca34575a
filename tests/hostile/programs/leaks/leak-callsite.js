//! {"ends": ["detached"], "sample": "leak-callsite", "calls": []}
let leak=null;try{Error.prepareStackTrace=(e,s)=>{leak=s.map(x=>x.getFunction());return ''}}catch(e){}const e=new Error('x');void e.stack;try{tools.x({get a(){new Error('y').stack;return 1}})}catch(e){}return [typeof Object.getOwnPropertyDescriptor(Error,'prepareStackTrace'),typeof Error.captureStackTrace,Array.isArray(leak)]
