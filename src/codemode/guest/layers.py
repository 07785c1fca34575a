"""The isolation layers of a worker and their states. Loaded by path in workers."""

LAYERS = (
    "seccomp",
    "one-descriptor",
    "no-new-privs",
    "rlimits",
    "landlock",
    "namespaces",
    "uid-drop",
    "not-dumpable",
    "parent-death-signal",
)
REQUIRED_LAYERS = LAYERS[:4]

# The beginning of a line of the report; what a layer covers, or why it was refused, stands behind a colon.
IN_FORCE = "in force"
REFUSED = "refused by the environment"
