//! {"ends": ["returns"], "sample": "txt-proto-assign", "calls": [["echoProto", null]], "value": [true]}
const r=await tools.echoProto();const o=Object.assign({},r);return [({}).polluted===undefined]
