"""The options of `bayeslab structure`, those of reading named after STRUCTURE's mainparams."""

import argparse
from pathlib import Path
from typing import Any

from bayeslab.command_line.values import alpha_or_learn, ascending_numbers, integer_or_word, positive_integer

EXAMPLES = """
examples:
  PLINK, VCF or BCF, GENEPOP, told by what they hold:
    bayeslab structure panel.bed -k 2-6 --maf 0.05 -o out/
    bayeslab structure panel.vcf.gz -k 2-6 --r2 0.2 -o out/
    bayeslab structure panel.gen -k 2-6 -o out/
  STRUCTURE, with its mainparams or by options of the same names:
    bayeslab structure panel.str --mainparams mainparams -k 2-6 -o out/
    bayeslab structure panel.str --popdata --extracols 2 --missing -9 -k 2-6 -o out/
  Stacks (populations --structure), and PLINK (--recode structure), where 0 is a missing allele:
    bayeslab structure populations.structure --popdata --missing 0 -k 2-6 -o out/
    bayeslab structure plink.recode.strct_in --onerowperind --popdata --mapdistances --markernames --missing 0 -k 2-6
        -o out/
  individuals of known origin, from panel.pop or from the flags of a file of STRUCTURE:
    bayeslab structure panel.bed --supervised -k 3 -o out/
    bayeslab structure panel.str --popdata --popflag --supervised -k 3 -o out/
  places of sampling as a prior; from an ADMIXTURE run on:
    bayeslab structure panel.str --locdata --locprior -k 2-4 -o out/
    bayeslab structure panel.bed --start-from panel.3.Q panel.3.P -k 2-4 -o out/
  fastStructure, with six columns before the alleles:
    bayeslab structure panel.str --extracols 5 --num-loci 100 --no-markernames -k 2-6 -o out/
"""
SWITCHES = {
    "one_row": (["--onerowperind", "--one-row"], "an individual has one line, with all copies of a locus side by side"),
    "labels": (["--label", "--labels"], "the first column names individuals (default: yes)"),
    "populations": (["--popdata", "--populations"], "a column of populations comes next; their labels may be text"),
    "population_flags": (["--popflag"], "then one of flags, 0 or 1"),
    "locations": (["--locdata", "--location"], "then one of sampling locations"),
    "phenotypes": (["--phenotype"], "then one of phenotypes"),
    "marker_names": (["--markernames"], "the first line names the loci (default: found out where that is certain)"),
    "recessive_alleles": (["--recessivealleles"], "then a line of recessive alleles"),
    "map_distances": (["--mapdistances"], "then a line of distances"),
    "phase_rows": (["--phaseinfo"], "a line of phases follows each individual"),
}
"""Options of `read_structure` that are yes or no, what they are called here, and what they mean."""
NUMBERS = {
    "ploidy": (["--ploidy"], "copies of a locus (default: 2)"),
    "missing": (["--missing"], "the code of a copy that was not read (default: -9; of .ped 0, may be a letter)"),
    "num_loci": (["--num-loci", "--numloci"], "where they are not named"),
    "num_individuals": (["--num-individuals", "--numinds"], "which the file is held against"),
    "extra_columns": (["--extra-columns", "--extracols"], "columns before the alleles that are passed over"),
}
"""Options of `read_structure` that are integers, one of them of `read_ped` too."""
FILTERS = {
    "max_missing_individual": "--max-missing-individual",
    "max_missing_locus": "--max-missing-locus",
    "min_minor_allele_frequency": "--maf",
    "thin_distance": "--thin",
    "max_r2": "--r2",
}
"""Options of `filter_genotypes`, and what they are called here."""


def add_structure(commands: Any, run: Any) -> None:
    """Adds the command `structure`."""
    what = "population structure of a file of genotypes: which K, ancestry"
    raw = argparse.RawDescriptionHelpFormatter
    structure = commands.add_parser("structure", help=what, description=what, epilog=EXAMPLES, formatter_class=raw)
    structure.set_defaults(run=run)
    structure.add_argument("file", type=Path, metavar="FILE", help="of PLINK (.bed, .ped, .raw), VCF, BCF, GENEPOP, "
                           "STRUCTURE, or genotypes.nc of an earlier run; compressed or not")  # fmt: skip
    structure.add_argument("-k", dest="numbers", type=ascending_numbers, default=(1, 2, 3, 4, 5), metavar="K",
                           help="numbers of populations, 2-6 or 2,3,5 (default: 1-5)")  # fmt: skip
    structure.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER",
                           help="for the report and all results; of the same command, it is gone on with")  # fmt: skip
    structure.add_argument("--export", action="store_true", help="write files for CLUMPP, distruct and pong, and "
                           "ADMIXTURE's .P, to FOLDER/export")  # fmt: skip
    structure.add_argument("--seed", type=int, default=0)
    structure.add_argument("--chains", type=positive_integer, default=4)
    structure.add_argument(
        "--warmup", type=positive_integer, default=200, help="sweeps before the first draw (default: 200)"
    )
    structure.add_argument("--draws", type=positive_integer, default=200, help="of each chain (default: 200)")
    structure.add_argument("--thinning", type=positive_integer, default=2, help="sweeps for a draw (default: 2)")
    structure.add_argument("--share", type=float, default=0.1, help="of genotypes hidden to choose K (default: 0.1)")
    structure.add_argument("--alpha", type=alpha_or_learn, default="learn", metavar="NUMBER",
                           help="of the Dirichlet of ancestry (default: learn)")  # fmt: skip
    structure.add_argument("--independent", action="store_true",
                           help="frequencies with a uniform prior, in place of drifted ones")  # fmt: skip
    priors = structure.add_argument_group("what is known beforehand")
    priors.add_argument("--locprior", dest="location_prior", action="store_true", help="a prior of ancestry for each "
                        "place of sampling: the locations, or without these the populations, of the file; how much "
                        "places tell is learned (STRUCTURE's LOCPRIOR)")  # fmt: skip
    priors.add_argument("--supervised", action="store_true", help="individuals of known origin: those of FILE's .pop, "
                        "as ADMIXTURE has it, or those with a --popflag of 1, of their --popdata")  # fmt: skip
    priors.add_argument("--start-from", nargs=2, metavar=("Q", "P"), help="ADMIXTURE's .Q and .P: chains of this K "
                        "begin there, and the report compares with them")  # fmt: skip
    filters = structure.add_argument_group("filters, in this order")
    filters.add_argument("--max-missing-individual", dest="max_missing_individual", type=float, metavar="SHARE",
                         help="0.99 leaves out individuals without any genotype")  # fmt: skip
    filters.add_argument("--max-missing-locus", dest="max_missing_locus", type=float, metavar="SHARE")
    filters.add_argument("--maf", dest="min_minor_allele_frequency", type=float, metavar="SHARE",
                         help="smallest minor allele frequency")  # fmt: skip
    filters.add_argument(
        "--thin", dest="thin_distance", type=positive_integer, metavar="BASES", help="smallest distance of loci"
    )
    filters.add_argument("--r2", dest="max_r2", type=float, metavar="R2", help="largest correlation of loci nearby")
    reading = structure.add_argument_group("files of STRUCTURE: its mainparams, or options of the same names")
    reading.add_argument("--mainparams", type=Path, metavar="FILE", help="read as it is; further options override it")
    for name, (flags, meaning) in NUMBERS.items():
        kind = {"missing": integer_or_word, "extra_columns": int}.get(name, positive_integer)
        reading.add_argument(*flags, dest=name, type=kind, metavar="N", help=meaning)
    for name, (flags, meaning) in SWITCHES.items():
        reading.add_argument(*flags, dest=name, action=argparse.BooleanOptionalAction, default=None, help=meaning)
