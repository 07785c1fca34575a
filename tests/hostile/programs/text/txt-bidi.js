//! {"ends": ["returns"], "value": 4}
return 'a‮b⁦'.length
