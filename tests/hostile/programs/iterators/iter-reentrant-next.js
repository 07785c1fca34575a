//! {"ends": ["returns", "throws"]}
let it;
it = [1, 2, 3].values().map(x => it.next());
return it.next()
