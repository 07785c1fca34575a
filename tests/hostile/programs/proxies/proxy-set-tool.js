//! {"ends": ["throws"]}
'use strict';
tools.x = 1
