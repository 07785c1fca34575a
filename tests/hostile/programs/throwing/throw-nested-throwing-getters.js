//! {"ends": ["throws"], "sample": "throw-nested-throwing-getters"}
throw {get name(){throw {get message(){throw 2}}}}
