//! {"ends": ["returns"], "sample": "code-reflect-newtarget"}
try{const v=Reflect.construct(Object.getPrototypeOf(function*(){}).constructor,['return 1'],Array);return ['RAN',String(v)]}catch(e){return ['refused',e.name]}
