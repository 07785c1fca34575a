//! {"ends": ["returns"], "value": true}
'use strict';
return this === undefined
