//! {"ends": ["timeout"]}
outer: for (;;) { continue outer }
