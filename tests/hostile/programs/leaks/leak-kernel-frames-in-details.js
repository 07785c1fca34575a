//! {"ends": ["returns"], "value": true}
try { tools.x({ toJSON() { throw new Error('here') } }) } catch (e) { return e.stack.split('\n').every(l => typeof l === 'string') }
