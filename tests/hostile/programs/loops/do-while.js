//! {"ends": ["timeout"]}
do {} while (1)
