//! {"ends": ["returns"]}
return [(1234.5).toLocaleString(), 'a'.localeCompare('B') < 0, 'I'.toLocaleLowerCase('de')]
