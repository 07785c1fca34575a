//! {"ends": ["returns"], "value": 1, "calls": [["x", 1]]}
return await new Promise(done => tools.x(1).then(() => { throw 1 }).then(null, done))
