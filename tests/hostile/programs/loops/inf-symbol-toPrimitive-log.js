//! {"ends": ["returns", "timeout"], "sample": "inf-symbol-toPrimitive-log"}
console.log(Object.create(null,{[Symbol.toPrimitive]:{value(){for(;;);}}}));return 1
