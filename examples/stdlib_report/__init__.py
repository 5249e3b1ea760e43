"""A report on Python's standard library, made by jobs while a process is killed and every connection is cut."""
