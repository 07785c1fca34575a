//! {"ends": ["timeout"]}
while (true) {}
