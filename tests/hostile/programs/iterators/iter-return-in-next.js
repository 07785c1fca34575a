//! {"ends": ["returns", "throws"]}
let it;
it = [1, 2, 3].values().map(x => { it.return(); return x });
return [it.next().value, it.next().done]
