"""The conversation between host and worker, without any I/O. Pure: no processes, clocks or randomness."""
