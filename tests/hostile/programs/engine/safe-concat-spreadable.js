//! {"ends": ["returns", "throws", "timeout"], "sample": "safe-concat-spreadable"}
const o={length:2**32+5,[Symbol.isConcatSpreadable]:true};try{return [].concat(o,o).length}catch(e){return e.name}
