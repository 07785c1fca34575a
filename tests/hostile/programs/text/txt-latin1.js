//! {"ends": ["returns"], "value": "\u00ff\u00e9"}
return 'ÿé'
