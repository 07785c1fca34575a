//! {"ends": ["returns", "throws"]}
class R extends RegExp { static get [Symbol.species]() { return function () { return { exec: () => null } } } }
return 'a'.split(new R('a')).length
