"""What is done to the sites of a program while it runs, so that all else reads them in one form."""
