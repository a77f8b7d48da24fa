"""What steps of ancestry and frequencies are given together."""

from typing import NamedTuple

from jax import Array

from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape


class Genotypes(NamedTuple):
    """Packed genotypes, see `pack`, and their sizes. It is no operand of compiled loops: the sizes are not numbers."""

    alleles: Array
    shape: GenotypeShape


class Position(NamedTuple):
    """Where a chain is: ancestry (individual, population) and frequencies (population, locus, allele)."""

    ancestry: Array
    frequencies: Array
