//! {"ends": ["returns"], "value": 1}
Promise.reject(new Error('nobody'));
(async () => { throw 1 })();
return 1
