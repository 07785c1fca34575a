//! {"ends": ["syntax"], "calls": [], "console": []}
}); (class { static async x() {
