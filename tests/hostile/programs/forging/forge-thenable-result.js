//! {"ends": ["returns"], "value": "mine"}
return { then(resolve) { resolve('mine'); resolve('other'); throw 1 } }
