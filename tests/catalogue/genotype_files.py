"""Three individuals at three loci in the file of every program that people come from; all hold the same genotypes.

Each case has the files by name, the first of which is read, the options of `read_genotypes`, and what is not as in the
others: names of individuals, populations and loci.
"""
# ruff: noqa: E501  (files as they are)

import bz2
import gzip
import lzma
from typing import Any, NamedTuple

GENOTYPES = {
    "ann": [("1", "2"), ("3", "3"), None],
    "bob": [("2", "2"), ("3", "4"), ("1", "1")],
    "cat": [("1", "1"), ("4", "4"), ("1", "3")],
}
"""Copies of every locus; None where none was read."""
LOCI = ["m1", "m2", "m3"]
POPULATIONS = {"ann": "1", "bob": "1", "cat": "2"}
LETTERS = {"1": "A", "2": "C", "3": "G", "4": "T"}
"""Alleles in formats that take letters."""


class Case(NamedTuple):
    """The files by name, the options, the names of loci, and the populations; None where the file has none."""

    files: dict[str, bytes]
    options: dict[str, Any] = {}
    loci: list[str] = LOCI
    populations: dict[str, str] | None = None
    individuals: list[str] = ["ann", "bob", "cat"]


def rows(missing: str = "-9", before: dict[str, str] | str = "", one_row: bool = False, sep: str = " ") -> list[str]:
    """The lines of individuals in STRUCTURE's text. before: the columns between label and alleles."""
    lines = []
    for name, genotypes in GENOTYPES.items():
        between = before if isinstance(before, str) else before[name]
        start = [name, *between.split()]
        pairs = [(missing, missing) if genotype is None else genotype for genotype in genotypes]
        copies = (
            [[copy for pair in pairs for copy in pair]]
            if one_row
            else [list(each) for each in zip(*pairs, strict=True)]
        )
        lines += [sep.join([*start, *copy]) for copy in copies]
    return lines


def text(*lines: str, end: str = "\n") -> bytes:
    return (end.join(lines) + end).encode()


NAMES = "m1 m2 m3"
BOTH = {name: f"{population} x{population}" for name, population in POPULATIONS.items()}
TEXT_LABELS = {"ann": "north", "bob": "north", "cat": "Río"}
PLAIN = text(NAMES, *rows())
NUMBERED = ["1", "2", "3"]


def mainparams(**values: Any) -> bytes:
    head = ["Basic Program Parameters", "", "#define OUTFILE out   // (str) name of output", "#define MAXPOPS 2"]
    return text(*head, *(f"#define {name}   {value}    // (int) what it is" for name, value in values.items()))


STRUCTURE = {
    "two rows": Case({"a.str": PLAIN}),
    "one row": Case({"a.str": text(NAMES, *rows(one_row=True))}, {"one_row": True}),
    "populations": Case({"a.str": text(NAMES, *rows(before=POPULATIONS))}, {"populations": True}, populations=POPULATIONS),
    "populations as text": Case(
        {"a.str": text(NAMES, *rows(before=TEXT_LABELS))}, {"populations": True}, populations=TEXT_LABELS
    ),
    "flags": Case(
        {"a.str": text(NAMES, *rows(before={name: f"{one} 1" for name, one in POPULATIONS.items()}))},
        {"populations": True, "population_flags": True},
        populations=POPULATIONS,
    ),
    "locations": Case({"a.str": text(NAMES, *rows(before="7"))}, {"locations": True}),
    "locations as text": Case({"a.str": text(NAMES, *rows(before="lake"))}, {"locations": True}),
    "phenotypes": Case({"a.str": text(NAMES, *rows(before="1"))}, {"phenotypes": True}),
    "extra columns": Case({"a.str": text(NAMES, *rows(before="q 2.5"))}, {"extra_columns": 2}),
    "every column": Case(
        {"a.str": text(NAMES, *rows(before={name: f"{one} 0 4 1 x" for name, one in POPULATIONS.items()}))},
        {"populations": True, "population_flags": True, "locations": True, "phenotypes": True, "extra_columns": 1},
        populations=POPULATIONS,
    ),
    "six columns of fastStructure": Case(
        {"a.str": text(*rows(before=dict.fromkeys(GENOTYPES, "p 0 0 0 -9")))},
        {"extra_columns": 5, "num_loci": 3, "marker_names": False},
        NUMBERED,
    ),
    "adegenet": Case({"a.stru": text("\t" + NAMES, *rows(before=POPULATIONS, sep="\t"))}, {"populations": True}, populations=POPULATIONS),
    "no labels": Case(
        {"a.str": text(NAMES, *(line.partition(" ")[2] for line in rows()))}, {"labels": False}, individuals=NUMBERED
    ),
    "no names": Case({"a.str": text(*rows())}, {"num_loci": 3, "marker_names": False}, NUMBERED),
    "names of all columns": Case({"a.str": text("ID " + NAMES, *rows())}),
    "names of populations too": Case(
        {"a.str": text("ID Pop " + NAMES, *rows(before=POPULATIONS))}, {"populations": True}, populations=POPULATIONS
    ),
    "dots as names": Case({"a.str": text(". . .", *rows())}, {}, NUMBERED),
    "distances": Case({"a.str": text(NAMES, "-1 12.5 3", *rows())}, {"map_distances": True, "marker_names": True}),
    "recessive alleles": Case({"a.str": text(NAMES, "-9 -9 -9", *rows())}, {"recessive_alleles": True, "marker_names": True}),
    "phases": Case(
        {"a.str": text(NAMES, *(line for number, row in enumerate(rows()) for line in ([row, "1 0.5 0"] if number % 2 else [row])))},
        {"phase_rows": True, "marker_names": True},
    ),
    "another code": Case({"a.str": text(NAMES, *rows("-1"))}, {"missing": -1}),
    "zero": Case({"a.str": text(NAMES, *rows("0"))}, {"missing": 0}),
    "PLINK recode structure": Case(
        {"plink.recode.strct_in": text(NAMES, "-1 5 -1", *rows("0", POPULATIONS, one_row=True))},
        {"one_row": True, "populations": True, "map_distances": True, "missing": 0, "marker_names": True},
        populations=POPULATIONS,
    ),
    "Stacks": Case(
        {"populations.structure": text("# Stacks v2.62;  Structure v2.3; March 3, 2024", "\t\t" + NAMES.replace(" ", "\t"),
                                       *rows("0", TEXT_LABELS, sep="\t"))},
        {"populations": True, "missing": 0},
        populations=TEXT_LABELS,
    ),
    "quotes of R": Case({"a.str": text('"m1" "m2" "m3"', *(line.replace(line[:3], f'"{line[:3]}"') for line in rows()))}),
    "Windows lines": Case({"a.str": text(NAMES, *rows(), end="\r\n")}),
    "old Mac lines": Case({"a.str": text(NAMES, *rows(), end="\r")}),
    "byte order mark": Case({"a.str": b"\xef\xbb\xbf" + PLAIN}),
    "blank lines": Case({"a.str": text("", NAMES, *(line + "\n" for line in rows()))}),
    "no last line end": Case({"a.str": PLAIN[:-1]}),
    "any suffix": Case({"genotypes.dat": PLAIN}),
    "no suffix": Case({"genotypes": PLAIN}),
    "txt": Case({"a.txt": PLAIN}),
    "gzip": Case({"a.str.gz": gzip.compress(PLAIN)}),
    "gzip of another name": Case({"a.str": gzip.compress(PLAIN)}),
    "bzip2": Case({"a.str.bz2": bz2.compress(PLAIN)}),
    "xz": Case({"a.structure.xz": lzma.compress(PLAIN)}),
}  # fmt: skip
"""Files of STRUCTURE and of programs that write them."""

MAINPARAMS = {
    "two rows": (PLAIN, mainparams(LABEL=1, POPDATA=0, NUMLOCI=3, NUMINDS=3, PLOIDY=2, MISSING=-9, MARKERNAMES=1)),
    "one row": (text(NAMES, *rows(one_row=True)), mainparams(ONEROWPERIND=1, MARKERNAMES=1, LABEL=1, NUMLOCI=3)),
    "no names": (text(*rows(before=POPULATIONS)), mainparams(MARKERNAMES=0, POPDATA=1, LABEL=1, NUMLOCI=3, EXTRACOLS=0)),
    "columns": (text(NAMES, *rows("-1", "1 1 4 5 x y")), mainparams(
        MARKERNAMES=1, LABEL=1, POPDATA=1, POPFLAG=1, LOCDATA=1, PHENOTYPE=1, EXTRACOLS=2, MISSING=-1, NUMLOCI=3)),
    "distances": (text(NAMES, "-1 2 3", *rows()), mainparams(MARKERNAMES=1, LABEL=1, MAPDISTANCES=1, NUMLOCI=3)),
}  # fmt: skip
"""Files of STRUCTURE with their mainparams."""


def ped_lines(letters: bool = True, sep: str = " ", families: bool = True) -> list[str]:
    lines = []
    for name, genotypes in GENOTYPES.items():
        copies = [copy for pair in genotypes for copy in (pair or ("0", "0"))]
        shown = [LETTERS.get(copy, "0") if letters else copy for copy in copies]
        lines.append(sep.join([POPULATIONS[name] if families else "0", name, "0", "0", "1", "-9", *shown]))
    return lines


MAP = text("1 m1 0 10", "1 m2 0 20", "2 m3 0 5")
COUNTED = {"m1": "2", "m2": "4", "m3": "3"}


def raw(header: list[str], het: bool = False) -> bytes:
    lines = ["FID IID PAT MAT SEX PHENOTYPE " + " ".join(header)]
    for name, genotypes in GENOTYPES.items():
        counts = [
            "NA" if pair is None else str(pair.count(COUNTED[locus]))
            for locus, pair in zip(LOCI, genotypes, strict=True)
        ]
        cells = [cell for count in counts for cell in ([count, "NA"] if het else [count])]
        lines.append(" ".join([POPULATIONS[name], name, "0", "0", "1", "-9", *cells]))
    return text(*lines)


def genepop(digits: int, loci: list[str], pop: str) -> bytes:
    lines = ["Three individuals", *loci]
    last = ""
    for name, genotypes in GENOTYPES.items():
        if POPULATIONS[name] != last:
            lines.append(pop)
            last = POPULATIONS[name]
        cells = ["".join(copy.zfill(digits) for copy in (pair or ("0", "0"))) for pair in genotypes]
        lines.append(f"{name} ,  " + " ".join(cells))
    return text(*lines)


def vcf(
    separator: str = "/", form: str = "GT", after: str = "", version: str = "4.2", alts: list[str] | None = None
) -> bytes:
    alts = alts or ["C", "T", "G"]
    lines = [f"##fileformat=VCFv{version}", "##contig=<ID=1>", "##contig=<ID=2>"]
    lines += [
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="-">',
        '##FORMAT=<ID=DP,Number=1,Type=Integer,Description="-">',
    ]
    lines.append("\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *GENOTYPES]))
    for place, (locus, reference, alternative) in enumerate(zip(LOCI, "AGA", alts, strict=True)):
        codes = {reference: "0", "CTG"[place]: "1"}
        calls = []
        for genotypes in GENOTYPES.values():
            pair = genotypes[place]
            copies = (".", ".") if pair is None else tuple(codes[LETTERS[copy]] for copy in pair)
            calls.append(separator.join(copies) + after)
        lines.append("\t".join(["1", str(10 + place), locus, reference, alternative, ".", "PASS", ".", form, *calls]))
    return text(*lines)


OTHERS = {
    "ped": Case({"a.ped": text(*ped_lines()), "a.map": MAP}, populations=POPULATIONS),
    "ped of tabs": Case({"a.ped": text(*ped_lines(sep="\t")), "a.map": MAP}, populations=POPULATIONS),
    "ped of numbers": Case({"a.ped": text(*ped_lines(letters=False)), "a.map": MAP}, populations=POPULATIONS),
    "ped with comments": Case(
        {"a.ped": text("# of PLINK", *ped_lines()), "a.map": text("# loci", MAP.decode()[:-1])}, populations=POPULATIONS
    ),
    "ped of which a locus is left out": Case(
        {"a.ped": text(*(f"{line} A A" for line in ped_lines())), "a.map": MAP + b"2 m4 0 -6\n"},
        populations=POPULATIONS,
    ),
    "ped without map": Case({"a.ped": text(*ped_lines(families=False))}, {}, NUMBERED),
    "ped with a map of three columns": Case(
        {"a.ped": text(*ped_lines()), "a.map": text("1 m1 10", "1 m2 20", "2 m3 5")}, populations=POPULATIONS
    ),
    "raw": Case({"a.raw": raw(["m1_C", "m2_T", "m3_G"])}, populations=POPULATIONS),
    "raw with alternatives": Case({"a.raw": raw(["m1_C(/A)", "m2_T(/G)", "m3_G(/A)"])}, populations=POPULATIONS),
    "raw with heterozygotes": Case(
        {"a.raw": raw(["m1_C", "m1_HET", "m2_T", "m2_HET", "m3_G", "m3_HET"], het=True)}, populations=POPULATIONS
    ),
    "raw of another suffix": Case({"a.txt": raw(["m1_C", "m2_T", "m3_G"])}, populations=POPULATIONS),
    "GENEPOP": Case({"a.gen": genepop(2, LOCI, "Pop")}, populations=POPULATIONS),
    "GENEPOP of three digits": Case({"a.genepop": genepop(3, LOCI, "POP")}, populations=POPULATIONS),
    "GENEPOP with loci in a line": Case({"a.txt": genepop(3, ["m1, m2, m3"], "pop")}, populations=POPULATIONS),
    "VCF": Case({"a.vcf": vcf()}),
    "phased VCF": Case({"a.vcf": vcf("|")}),
    "VCF with depths": Case({"a.vcf": vcf("/", "GT:DP", ":7")}),
    "VCF of 4.0": Case({"a.vcf": vcf(version="4.0")}),
    "VCF with missing alleles": Case({"a.vcf": vcf(alts=["C,*", "T,<DEL>", "G"])}),
    "VCF with several alternatives": Case({"a.vcf": vcf(alts=["C,T", "T,A,C", "G,GA"])}),
    "gzipped VCF": Case({"a.vcf.gz": gzip.compress(vcf())}),
    "VCF of another suffix": Case({"a.txt": vcf()}),
}
"""Files of other programs."""
