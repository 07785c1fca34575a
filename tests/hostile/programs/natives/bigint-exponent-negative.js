//! {"ends": ["throws"], "error_name": "RangeError"}
return 2n ** -1n
