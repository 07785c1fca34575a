//! {"ends": ["returns", "throws"]}
return new RegExp('a{99999999999}').test('a')
