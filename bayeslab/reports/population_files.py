"""Ancestry in the forms that other programs of population genetics read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.diagnostics.align import align
from bayeslab.populations.ancestry import ancestry_summary, write_q
from bayeslab.populations.run import Results
from bayeslab.results.saving import save_text

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import Dataset, DataTree

README = """What is here, for every number of populations K; individuals and loci are in the order of these lists.

individuals.txt, populations.txt  names of individuals, and the populations that they were sampled from
loci.txt                          names of loci, and the alleles 0 and 1
K.Q                               mean ancestry, a row an individual (ADMIXTURE, pong, distruct)
K.P                               mean frequency of allele 1, a row a locus (ADMIXTURE); of loci with two alleles only
K.run_C.Q                         the same of chain C alone; chains have one order of populations
K.indfile                         the chains one below the other, as CLUMPP reads them (DATATYPE 0)
K.popq                            mean ancestry of every sampled population (CLUMPP and distruct)
pong_filemap, pong_ind2pop        for pong: pong -m pong_filemap -i pong_ind2pop
"""
"""The file that says what the others are."""


def export(results: Results, folder: Path) -> Path:
    """Writes the files that README lists to a folder, which is made; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    genotypes = results.genotypes
    names = [str(name) for name in genotypes["individual"].values]
    sampled = (
        genotypes["population"].values.astype(str).tolist() if "population" in genotypes.coords else [""] * len(names)
    )
    sampled = [label or "unknown" for label in sampled]
    _write_lines(folder / "README.txt", [README.rstrip()])
    _write_lines(folder / "individuals.txt", names)
    _write_lines(folder / "populations.txt", sampled)
    _write_lines(folder / "pong_ind2pop", sampled)
    file_map: list[str] = []
    for number, tree in results.fits.items():
        sites = [name for name in ("ancestry", "frequencies") if name in tree["posterior"]]
        aligned = align(tree, dict.fromkeys(sites, "population"))
        summary = ancestry_summary(aligned)
        write_q(summary, folder / f"{number}.Q")
        chains = (
            aligned["posterior"]
            .to_dataset()["ancestry"]
            .mean("draw")
            .transpose("chain", "individual", "population")
            .values
        )
        chains = chains / chains.sum(-1, keepdims=True)
        for chain, shares in enumerate(chains, 1):
            _write_lines(folder / f"{number}.run_{chain}.Q", _rows(shares))
            file_map.append(f"K{number}_run{chain}\t{number}\t{number}.run_{chain}.Q")
        _write_lines(folder / f"{number}.indfile", _indfile(chains, sampled))
        _write_lines(
            folder / f"{number}.popq", _popq(summary["mean"].transpose("individual", "population").values, sampled)
        )
        frequencies = _mean_frequencies(aligned)
        loci = _fitted_loci(genotypes, frequencies)
        if loci is not None:
            _write_lines(folder / "loci.txt", [f"{name} {' '.join(known)}" for name, known in loci])
            _write_lines(folder / f"{number}.P", _rows(frequencies[:, :, 1].T))
    _write_lines(folder / "pong_filemap", file_map)
    return folder


def _mean_frequencies(tree: DataTree) -> NDArray[Any]:
    """Mean frequencies (population, locus, allele) of aligned chains."""
    kept = "posterior_mean" in tree.children and "frequencies" in tree["posterior_mean"].data_vars
    source = tree["posterior_mean" if kept else "posterior"].to_dataset()["frequencies"].astype(float)
    mean = source.mean([dim for dim in ("chain", "draw") if dim in source.dims])
    return mean.transpose("population", "locus", "allele").values


def _fitted_loci(genotypes: Dataset, frequencies: NDArray[Any]) -> list[tuple[str, list[str]]] | None:
    """The names and alleles of the loci of a fit; None where some have not two alleles, or loci were dropped."""
    alleles = [[name for name in known if name] for known in genotypes["alleles"].values.tolist()]
    if frequencies.shape[1:] != (len(alleles), 2) or any(len(known) != 2 for known in alleles):
        return None
    return [(str(name), known) for name, known in zip(genotypes["locus"].values, alleles, strict=True)]


def _indfile(chains: NDArray[Any], sampled: list[str]) -> list[str]:
    """The lines of CLUMPP's indfile: number, number, missing share, number of the population, a colon, shares."""
    codes = {label: code for code, label in enumerate(dict.fromkeys(sampled), 1)}
    lines: list[str] = []
    for shares in chains:
        lines += [f"{one} {one} (0) {codes[label]} : {row}" for one, (label, row) in
                  enumerate(zip(sampled, _rows(shares), strict=True), 1)]  # fmt: skip
        lines.append("")
    return lines


def _popq(mean: NDArray[Any], sampled: list[str]) -> list[str]:
    """The lines of mean ancestry by population: number, a colon, shares, number of individuals."""
    labels = np.array(sampled)
    groups = [mean[labels == label] for label in dict.fromkeys(sampled)]
    return [f"{code}: {_rows(group.mean(0)[None])[0]} {len(group)}" for code, group in enumerate(groups, 1)]


def _rows(shares: NDArray[Any]) -> list[str]:
    """Rows of numbers with six decimals."""
    return [" ".join(f"{share:.6f}" for share in row) for row in shares]


def _write_lines(path: Path, lines: list[str]) -> None:
    save_text("".join(f"{line}\n" for line in lines), path)
