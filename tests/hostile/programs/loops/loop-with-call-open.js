//! {"ends": ["timeout"]}
tools.x(1);
for (;;);
