//! {"ends": ["throws", "timeout", "returns", "memory"], "sample": "mem-regex-nest-quant"}
return new RegExp('('.repeat(20)+'a'+'{1,999})'.repeat(20)).test('a'.repeat(1000))
