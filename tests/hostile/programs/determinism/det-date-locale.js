//! {"ends": ["returns"]}
return [new Date(0).toLocaleString(), new Date(0).toLocaleDateString('de'), new Date(0).toLocaleTimeString()]
