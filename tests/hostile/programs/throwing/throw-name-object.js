//! {"ends": ["throws"], "error_name": "N", "message": "M"}
throw { name: { toString() { return 'N' } }, message: { toString() { return 'M' } } }
