"""Tests of scalar sites, many at once."""
