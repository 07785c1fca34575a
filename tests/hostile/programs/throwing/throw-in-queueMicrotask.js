//! {"ends": ["returns"], "sample": "throw-in-queueMicrotask", "value": 1}
queueMicrotask(()=>{throw {toString(){for(;;);}}});await null;await null;return 1
