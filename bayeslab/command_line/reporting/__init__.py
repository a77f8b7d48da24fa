"""The commands that write a report: population structure of genotypes, topics of documents."""
