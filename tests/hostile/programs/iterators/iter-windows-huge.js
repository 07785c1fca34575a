//! {"ends": ["throws", "returns", "memory"]}
return [1, 2].values().windows(2 ** 32 - 1).toArray()
