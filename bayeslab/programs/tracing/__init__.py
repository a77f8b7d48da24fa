"""What is read from traces of programs: compiled pieces, paths through operations, where values come from."""
