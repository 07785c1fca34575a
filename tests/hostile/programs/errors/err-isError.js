//! {"ends": ["returns"], "value": [true, false, false]}
return [Error.isError(new Error()), Error.isError(Object.create(Error.prototype)), Error.isError(new Proxy(new Error(), {}))]
