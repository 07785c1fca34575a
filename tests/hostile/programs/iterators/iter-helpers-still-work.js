//! {"ends": ["returns"], "value": [[2, 4, 6], [[1, 2], [3]], [[1, 2], [2, 3]], [[1]], [4]]}
return [[1, 2, 3].values().map(x => x * 2).toArray(), [1, 2, 3].values().chunks(2).toArray(), [1, 2, 3].values().windows(2).toArray(), [1].values().windows(2, 'allow-partial').toArray(), [3, 4].values().drop(1).take(1).toArray()]
