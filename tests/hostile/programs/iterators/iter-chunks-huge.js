//! {"ends": ["throws", "returns", "memory"]}
return [1, 2].values().chunks(2 ** 32 - 1).toArray()
