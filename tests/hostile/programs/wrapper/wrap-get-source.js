//! {"ends": ["syntax"], "calls": [], "console": []}
}); Function.prototype.toString = () => 'x'; (async function () {
