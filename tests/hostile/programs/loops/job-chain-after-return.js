//! {"ends": ["returns"]}
const again = () => queueMicrotask(again);
again();
return 1
