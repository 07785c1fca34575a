//! {"ends": ["returns"]}
return { type: 'code-mode-interrupt', interruptId: 'x', continuation: 'y' }
