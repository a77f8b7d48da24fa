"""From a file of genotypes to a report, in steps whose results are files: what is there already is not done again."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from xarray import Dataset

from bayeslab.datasets import filter_genotypes, genotype_linkage, genotypes, read_genotypes
from bayeslab.datasets.genetics.linkage import Linkage
from bayeslab.fitting import fit
from bayeslab.mixed_membership.methods import Gibbs
from bayeslab.populations.choice import (
    HeldOutGenotypes,
    Means,
    comparison_table,
    empirical_drift,
    hide_genotypes,
    means_of_chain,
    score_populations,
)
from bayeslab.populations.known_origins import with_known_origins
from bayeslab.populations.priors_of_ancestry import (
    ancestry_arguments,
    places,
    prior_of_choice,
    start_of_chains,
    with_rows_of_file,
)
from bayeslab.populations.run_folder import GENOTYPES_FILE, claim_folder, run_record
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Program, precision_scope, raw_key
from bayeslab.results.datatree import constant_data, observed_data
from bayeslab.results.saving import save

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataTree

NUM_PARTS_PER_FIT = 4
"""The number of parts in which the draws of a fit are made; they are written after each part."""
MAX_DRAWS_OF_CHOICE = 50
"""The most draws of a chain that predict hidden genotypes."""
REPEATED_GROUPS = ("observed_data", "constant_data")
"""Groups that the file of every fit would repeat, and that are left out of it."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    populations: their numbers, ascending. share: of genotypes that are hidden to choose among them. alpha: of the
    ancestry; None to learn it. independent: whether frequencies are, and not drifted from those of all individuals.
    location_prior: whether ancestry has a prior for each place of sampling. supervised: whether some individuals are of
    known origin, see `with_known_origins`; alpha of the others is 1 unless it is given. start_from: the paths of a .Q
    and a .P of ADMIXTURE, where chains of their number of populations begin and which the fit is compared with.
    reading, filters: options of `read_genotypes` and `filter_genotypes`.
    """

    file: str
    populations: tuple[int, ...]
    seed: int = 0
    chains: int = 4
    warmup: int = 200
    draws: int = 200
    thinning: int = 2
    share: float = 0.1
    alpha: float | None = None
    independent: bool = False
    location_prior: bool = False
    supervised: bool = False
    start_from: tuple[str, str] | None = None
    reading: Mapping[str, Any] | None = None
    filters: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share is {self.share}; expected a share of genotypes to hide, between 0 and 1")
        if self.location_prior and self.supervised:
            raise ValueError("location_prior and supervised are two priors of the same ancestry; expected one of them")

    @property
    def method(self) -> Gibbs:
        """The method of the fits."""
        return Gibbs(self.warmup, self.draws, self.chains, thinning=self.thinning)

    @property
    def method_of_choice(self) -> Gibbs:
        """The method that predicts hidden genotypes where ancestry has a prior by places, which has no bound."""
        return replace(self.method, num_samples=min(self.draws, MAX_DRAWS_OF_CHOICE))


class Results(NamedTuple):
    """The results of a run.

    genotypes: as filtered. choice: the table of `choose_populations`. fits: by their number of populations.
    seconds: that each step took, in whichever run it was made.
    """

    genotypes: Dataset
    choice: Dataset
    fits: dict[int, DataTree]
    seconds: dict[str, float]


def run_structure(
    model: Program,
    correlated: Program,
    settings: Settings,
    folder: Path,
    say: Callable[[str], None],
    progress: bool = False,
) -> Results:
    """Read, choose, fit. Stopped at any moment and called again it goes on, with the results of one that was not; so it
    does with more draws, and with larger numbers of populations after those that were there.

    model, correlated: programs with independent frequencies, which K is chosen with, and with drifted ones.
    folder: for the files of all steps; made where there is none, once genotypes are read and pass. say: is told what
        is done.
    Raises ValueError for a folder with the results of other settings or of a file that has changed since, and as
    reading, filtering and fitting do.
    """
    run, seconds, key = run_record(asdict(settings), folder), dict[str, float](), raw_key(settings.seed)

    def read() -> Dataset:
        panel = _read_panel(settings)
        with warnings.catch_warnings(action="ignore"):  # says what is wrong before there is a folder
            hide_genotypes(key, model, genotypes(panel), settings.share)
        claim_folder(run, folder)
        return panel

    panel = _load_or_make(folder / GENOTYPES_FILE, "reading and filtering", seconds, say, read)
    claim_folder(run, folder)
    if warning := linkage_warning(panel):
        say(warning)
    data = genotypes(panel)
    initial = start_of_chains(panel, settings)
    rows: list[Dataset] = []
    means_by_number: dict[int, Means] = {}
    hidden = hide_genotypes(key, model, data, settings.share)
    for number in settings.populations:
        data_of_choice = data | {"alpha": prior_of_choice(panel, settings, number)}

        def choose(number: int = number, data_of_choice: dict[str, Any] = data_of_choice) -> Dataset:
            held_out = HeldOutGenotypes(model, data_of_choice, hidden)
            row, tree = score_populations(settings.seed, held_out, number, before=means_by_number.get(number - 1))
            means = _mean_variables(means_of_chain(tree))
            if settings.location_prior and number > 1:
                held_out = held_out._replace(data=data | ancestry_arguments(panel, settings, number))
                row, _ = score_populations(settings.seed, held_out, number, settings.method_of_choice)
            return row.assign(means)

        row = _load_or_make(folder / "choice" / f"{number}.nc", f"K = {number}: predicting", seconds, say, choose)
        means_by_number[number] = Means(row["ancestry_mean"].values, row["frequencies_mean"].values)
        rows.append(row.drop_vars(["ancestry_mean", "frequencies_mean"]))
    fits = {}
    for number in settings.populations:
        say(f"K = {number}: drawing")
        data_of_number = data | {"num_populations": number} | ancestry_arguments(panel, settings, number)
        if not settings.independent:
            data_of_number |= empirical_drift(data, means_by_number[number])
        program = model if settings.independent else correlated
        at_number = initial if initial and initial["ancestry"].shape[1] == number else None
        fits[number] = _fit_in_parts(program, settings, data_of_number, folder, progress, at_number)
        seconds[f"K = {number}: drawing"] = fits[number].attrs["seconds"]
    return Results(panel, comparison_table(rows), fits, seconds)


def linkage_warning(panel: Dataset) -> str:
    """A sentence on loci in strong linkage and what to do, or on what may be linkage; empty where nothing speaks for it
    or it was not measured."""
    linkage = Linkage(*(float(panel.attrs.get(name, np.nan)) for name in Linkage._fields))
    correlated = f"the squared correlation of {linkage.neighbours:.0%} of"
    if linkage.is_unclear:
        return (
            f"{correlated} neighbouring loci is above 0.5, by linkage or by population structure, which too few loci "
            "far apart tell from each other; the model takes loci for independent given the ancestry"
        )
    if not linkage.is_strong:
        return ""
    is_placed = "position" in panel.coords and bool((panel["position"] > 0).any())
    return (
        f"neighbouring loci are in strong linkage: {correlated} them is above 0.5, and of {linkage.far_apart:.0%} of "
        "the pairs far apart. The model takes loci for independent, so intervals are too narrow and a long haplotype "
        f"may look like a population; thin them, with --r2 0.2{' or --thin 100000' if is_placed else ''}"
    )


def _load_or_make(
    path: Path, what: str, seconds: dict[str, float], say: Callable[[str], None], make: Callable[[], Dataset]
) -> Dataset:
    """The Dataset in this file, made and written where there is none."""
    from xarray import load_dataset

    if not path.exists():
        say(what)
        start = time.perf_counter()
        dataset = make()
        save(dataset.assign_attrs(seconds=time.perf_counter() - start), path)
    dataset = load_dataset(path, engine="h5netcdf", mask_and_scale=False)
    seconds[what] = float(dataset.attrs["seconds"])
    return dataset


def _read_panel(settings: Settings) -> Dataset:
    """The genotypes as filtered. Raises ValueError for fewer individuals than populations."""
    panel = read_genotypes(Path(settings.file), **(settings.reading or {}))
    if settings.supervised:
        panel = with_known_origins(panel, settings.file)
    if settings.location_prior:
        places(panel)  # says what is wrong before anything long is done
    if settings.start_from:
        panel = with_rows_of_file(panel)
    panel = filter_genotypes(panel, **(settings.filters or {}))
    panel = panel.assign_attrs(genotype_linkage(panel)._asdict())
    if (most := settings.populations[-1]) > (individuals := panel.sizes["individual"]):
        raise ValueError(f"K = {most} is more than the {individuals} individuals; expected at most as many populations")
    for number in settings.populations if settings.supervised else ():
        ancestry_arguments(panel, settings, number)  # the same
    if settings.start_from:
        start_of_chains(panel, settings)
    return panel


def _mean_variables(means: Means) -> dict[str, Any]:
    """Means as variables of a Dataset."""
    frequencies = (("population", "locus", "allele"), means.frequencies)
    return {"ancestry_mean": (("individual", "population"), means.ancestry), "frequencies_mean": frequencies}


def _fit_in_parts(
    model: Program,
    settings: Settings,
    data: dict[str, Any],
    folder: Path,
    progress: bool,
    initial: dict[str, NDArray[Any]] | None,
) -> DataTree:
    """The result with all draws, made in parts; what a part has made is written before the next begins."""
    from xarray import load_datatree

    number = data["num_populations"]
    path, draws_per_part = (
        folder / "fits" / f"{number}.nc",
        max(-(-settings.draws // NUM_PARTS_PER_FIT), settings.chains),
    )
    kept_tree = load_datatree(path, engine="h5netcdf") if path.exists() else None
    key, full_tree = jax.random.fold_in(raw_key(settings.seed), number), None
    while kept_tree is None or kept_tree["posterior"].sizes["draw"] < settings.draws:
        start = time.perf_counter()
        seconds, num_done = (
            (0.0, 0) if kept_tree is None else (kept_tree.attrs["seconds"], kept_tree["posterior"].sizes["draw"])
        )
        if kept_tree is not None and full_tree is None:
            full_tree = _with_data_groups(kept_tree, model, data)
        num_left = settings.draws - num_done
        method = replace(settings.method, num_samples=draws_per_part if num_left >= 2 * draws_per_part else num_left)
        values = initial if full_tree is None else None
        full_tree = fit(key, model, data, method, previous=full_tree, progress=progress, start=values)
        if full_tree.attrs["interrupted"]:
            raise KeyboardInterrupt
        kept_tree = _tree_of_groups(
            {name: node for name, node in full_tree.children.items() if name not in REPEATED_GROUPS}, full_tree
        )
        kept_tree.attrs["drift"] = np.asarray(data.get("drift", np.nan))
        kept_tree.attrs["seconds"] = float(seconds + time.perf_counter() - start)
        save(kept_tree, path)
    return kept_tree


def _with_data_groups(tree: DataTree, model: Program, data: dict[str, Any]) -> DataTree:
    """The tree with the groups that a fit compares its data with before it goes on."""
    from xarray import DataTree

    with precision_scope():
        bound = bind(model, data)
        data_groups = {"observed_data": observed_data(bound), "constant_data": constant_data(bound)}
    known = {
        group: DataTree.from_dict(
            {"/": Dataset({name: _with_default_dims(name, value) for name, value in values.items()})}
        )
        for group, values in data_groups.items()
    }
    return _tree_of_groups({**tree.children, **known}, tree)


def _with_default_dims(name: str, value: NDArray[Any]) -> tuple[list[str], NDArray[Any]]:
    """A variable with default names of its dimensions."""
    return [f"{name}_dim_{axis}" for axis in range(value.ndim)], value


def _tree_of_groups(groups: Mapping[str, DataTree], tree: DataTree) -> DataTree:
    """A tree of these groups, with the attributes of another."""
    from xarray import DataTree

    result = DataTree.from_dict({name: node.to_dataset() for name, node in groups.items()})
    result.attrs = dict(tree.attrs)
    return result
