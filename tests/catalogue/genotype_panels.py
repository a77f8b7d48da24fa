"""One small panel of genotypes, and independent writers of it in every format."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cyvcf2 import VCF, Writer
from hypothesis import settings

from bayeslab import datasets

Array = np.ndarray[Any, Any]
quick = settings(deadline=None, derandomize=True, max_examples=60)


def diploid(individuals: int = 7, loci: int = 11, seed: int = 0) -> Array:
    """y (individual, locus, copy) with both alleles at each locus; a genotype is there or missing as a whole."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, 2, (individuals, loci, 2)), -1)
    y[rng.random((individuals, loci)) < 0.2] = -1
    y[0], y[1, :] = [0, 1], [1, 1]
    return y.astype(np.int8)


Y = diploid()
PEOPLE = [f"i{number}" for number in range(len(Y))]
LOCI = [f"rs{number}" for number in range(Y.shape[1])]


def table(*columns: Any) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in zip(*columns, strict=True))


def plink_bytes(y: Array) -> bytes:
    """Two bits a genotype, the first individual in the lowest: 0 both A1, 1 missing, 2 one of each, 3 both A2."""
    code = {(1, 1): 0, (-1, -1): 1, (0, 1): 2, (0, 0): 3}
    found = [0x6C, 0x1B, 0x01]
    for locus in range(y.shape[1]):
        bits = [code[tuple(one)] for one in y[:, locus].tolist()]
        bytes_here = (bits[start : start + 4] for start in range(0, len(bits), 4))
        found += [sum(value << 2 * place for place, value in enumerate(four)) for four in bytes_here]
    return bytes(found)


def write_plink(folder: Path, y: Array = Y, bim: str = "", fam: str = "") -> Path:
    individuals, loci = y.shape[:2]
    ones, zeros = [1] * loci, [0] * individuals
    bim = bim or table(ones, [f"rs{i}" for i in range(loci)], [0] * loci, range(10, 10 + loci), "A" * loci, "G" * loci)
    people = [f"i{number}" for number in range(individuals)]
    fam = fam or table(["east", "west", *people[2:]], people, zeros, zeros, zeros, zeros)
    folder.joinpath("panel.bim").write_text(bim)
    folder.joinpath("panel.fam").write_text(fam)
    folder.joinpath("panel.bed").write_bytes(plink_bytes(y))
    return folder / "panel.bed"


def vcf_text(y: Array = Y) -> str:
    head = '##fileformat=VCFv4.2\n##contig=<ID=1>\n##FILTER=<ID=low,Description="-">\n'
    head += '##FORMAT=<ID=GT,Number=1,Type=String,Description="-">\n'
    head += "\t".join(["#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT", *PEOPLE[: len(y)]]) + "\n"
    for locus, here in enumerate(np.where(y < 0, ".", y.astype(str)).swapaxes(0, 1).tolist()):
        fixed = ["1", str(10 + locus), LOCI[locus], "G", "A", ".", "PASS", ".", "GT"]
        head += "\t".join([*fixed, *map("/".join, here)]) + "\n"
    return head


def write_vcf(folder: Path, suffix: str, text: str = "") -> Path:
    path = folder / f"panel{suffix}"
    plain = folder / "plain.vcf"
    plain.write_text(text or vcf_text())
    if suffix == ".vcf":
        return plain.rename(path)
    if suffix == ".vcf.gz":
        path.write_bytes(gzip.compress(plain.read_bytes()))
        return path
    source = VCF(plain)
    target = Writer(path, source, mode={".bcf": "wb", ".vcf.bgz": "wz"}[suffix])
    for record in source:
        target.write_record(record)
    target.close()
    return path


def structure_text(y: Array = Y, one_row: bool = False, populations: bool = False) -> str:
    """Alleles 0 and 1 are 120 and 124."""
    values = np.where(y < 0, -9, 120 + 4 * y)
    text = " ".join(LOCI) + "\n"
    for number, one in enumerate(values):
        start = [PEOPLE[number], *(["2"] if populations else [])]
        rows = [one.ravel()] if one_row else one.T
        text += "".join(" ".join([*start, *map(str, row)]) + "\n" for row in rows)
    return text


SMALL_TEXTS = {
    "gen": "title\nm1\npop\na, 0102\n",
    "ped": "f a 0 0 1 1 A C\n",
    "raw": "FID IID PAT MAT SEX PHENOTYPE m_A\nf a 0 0 1 1 2\n",
    "mainparams": "#define PLOIDY 2\n",
    "ldac": "2 0:1 1:2\n",
    "uci": "1\n2\n1\n1 2 3\n",
    "mm": "%%MatrixMarket matrix coordinate integer general\n1 2 1\n1 2 3\n",
}
"""The smallest files of other formats, by suffix."""


def write_small_texts(folder: Path) -> dict[Callable[..., Any], dict[str, Any]]:
    """Writes them; returns their readers, with arguments that are right."""
    paths = {suffix: folder / f"panel.{suffix}" for suffix in SMALL_TEXTS}
    for suffix, path in paths.items():
        path.write_text(SMALL_TEXTS[suffix])
    return {
        datasets.read_genepop: {"path": paths["gen"]},
        datasets.read_ped: {"path": paths["ped"], "missing": "0"},
        datasets.read_raw: {"path": paths["raw"]},
        datasets.structure_options: {"path": paths["mainparams"]},
        datasets.read_ldac: {"path": paths["ldac"], "words": ["a", "b"]},
        datasets.read_uci: {"path": paths["uci"], "words": ["a", "b"]},
        datasets.read_market: {"path": paths["mm"], "words": ["a", "b"]},
        datasets.read_texts: {"path": paths["mainparams"], "encoding": "utf-8"},
    }
