"""Real data for the lectures, and the functions that turn tables into the data of a model."""

from bayeslab.datasets.classification import breast_cancer, classification_data, irises, simulated_mails, wines
from bayeslab.datasets.corpora.document_data import documents, simulated_documents
from bayeslab.datasets.corpora.word_selection import select_words
from bayeslab.datasets.decision_data import balanced_pole, grid_walk, grid_world, river_swim, swinging_pendulum
from bayeslab.datasets.files.corpora import read_ldac, read_market, read_uci
from bayeslab.datasets.files.texts import read_texts
from bayeslab.datasets.genetics.data import genotypes, simulated_genotypes
from bayeslab.datasets.genetics.filters import filter_genotypes
from bayeslab.datasets.genetics.genepop import read_genepop
from bayeslab.datasets.genetics.linkage import genotype_linkage
from bayeslab.datasets.genetics.mainparams import structure_options
from bayeslab.datasets.genetics.plink import read_plink
from bayeslab.datasets.genetics.plink_text import read_ped, read_raw
from bayeslab.datasets.genetics.read import read_genotypes
from bayeslab.datasets.genetics.structure_text import read_structure
from bayeslab.datasets.genetics.vcf import read_vcf
from bayeslab.datasets.latent_linear import (
    handwritten_digits,
    simulated_cocktail_party,
    simulated_tomogram,
    standardised_wines,
)
from bayeslab.datasets.motifs import motif_data, rox1_sites
from bayeslab.datasets.regression import new_rows, original_scale, regression_data
from bayeslab.datasets.scales import scaled_prior
from bayeslab.datasets.sequence_data import dishonest_casino, rib_and_rob, sequences
from bayeslab.datasets.series import co2_mauna_loa, earthquakes, google_days, monthly_returns, onegin_stanza
from bayeslab.datasets.state_space import nile, simulated_returns, simulated_track
from bayeslab.datasets.tables import (
    at_bats,
    batting_averages,
    blood_groups,
    diabetes,
    half_moons,
    iris_setosa,
    mendel_peas,
    portland_houses,
    portland_inputs,
    shop_visitors,
)
from bayeslab.datasets.times.frames import process_data, process_times, series_data, state_space_data

__all__ = [
    "at_bats",
    "balanced_pole",
    "batting_averages",
    "blood_groups",
    "breast_cancer",
    "classification_data",
    "co2_mauna_loa",
    "diabetes",
    "dishonest_casino",
    "documents",
    "earthquakes",
    "filter_genotypes",
    "genotype_linkage",
    "genotypes",
    "google_days",
    "grid_walk",
    "grid_world",
    "half_moons",
    "handwritten_digits",
    "iris_setosa",
    "irises",
    "mendel_peas",
    "monthly_returns",
    "motif_data",
    "new_rows",
    "nile",
    "onegin_stanza",
    "original_scale",
    "portland_houses",
    "portland_inputs",
    "process_data",
    "process_times",
    "read_genepop",
    "read_genotypes",
    "read_ldac",
    "read_market",
    "read_ped",
    "read_plink",
    "read_raw",
    "read_structure",
    "read_texts",
    "read_uci",
    "read_vcf",
    "regression_data",
    "rib_and_rob",
    "river_swim",
    "rox1_sites",
    "scaled_prior",
    "select_words",
    "sequences",
    "series_data",
    "shop_visitors",
    "simulated_cocktail_party",
    "simulated_documents",
    "simulated_genotypes",
    "simulated_mails",
    "simulated_returns",
    "simulated_tomogram",
    "simulated_track",
    "standardised_wines",
    "state_space_data",
    "structure_options",
    "swinging_pendulum",
    "wines",
]
