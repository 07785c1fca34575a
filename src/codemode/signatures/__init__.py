"""What the model reads about the tools. Pure text: knows nothing of how tools are executed."""
