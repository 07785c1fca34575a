//! {"ends": ["returns"]}
return [new Date(0).toLocaleString(), new Date(0).toLocaleDateString('en-US'), new Date(0).toLocaleTimeString()]
