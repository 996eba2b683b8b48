"""What is asked of the operating system: files, locks, memory, signals, threads."""
