"""What traces of programs say: code that is compiled once, operations that are not analytic, data flow."""
