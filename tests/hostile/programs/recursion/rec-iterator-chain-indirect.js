//! {"ends": ["throws", "memory"], "sample": "rec-iterator-chain-indirect"}
let it=[1].values();const I=Iterator.prototype;for(let i=0;i<1e5;i++)it=Reflect.apply(Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]())).map,it,[x=>x]);it.next()
