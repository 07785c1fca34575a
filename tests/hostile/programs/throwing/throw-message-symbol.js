//! {"ends": ["throws"], "error_name": "N"}
throw { name: 'N', message: Symbol('m') }
