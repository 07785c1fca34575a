//! {"ends": ["syntax"]}
#!/bin/sh
return 1
