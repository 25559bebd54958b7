"""One file a question, one table each; they run on CPU and GPU."""
