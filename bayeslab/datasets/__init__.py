"""Real data for the lectures, and the functions that turn tables into the data of a model."""

from .documents import documents, simulated_documents
from .filtering import filter_genotypes
from .genotype_files import read_genotypes
from .genotypes import genotypes, simulated_genotypes
from .motifs import motif_data, rox1_sites
from .plink import read_plink
from .regression import new_rows, original_scale, regression_data
from .scales import scaled_prior
from .sequences import dishonest_casino, sequences
from .series import co2_mauna_loa, earthquakes, google_days, monthly_returns, onegin_stanza
from .state_space import nile, simulated_track
from .structure_text import read_structure
from .tables import diabetes, half_moons, iris_setosa, mendel_peas, portland_houses, portland_inputs
from .vcf import read_vcf

__all__ = [
    "co2_mauna_loa",
    "diabetes",
    "dishonest_casino",
    "documents",
    "earthquakes",
    "filter_genotypes",
    "genotypes",
    "google_days",
    "half_moons",
    "iris_setosa",
    "mendel_peas",
    "monthly_returns",
    "motif_data",
    "new_rows",
    "nile",
    "onegin_stanza",
    "original_scale",
    "portland_houses",
    "portland_inputs",
    "read_genotypes",
    "read_plink",
    "read_structure",
    "read_vcf",
    "regression_data",
    "rox1_sites",
    "scaled_prior",
    "sequences",
    "simulated_documents",
    "simulated_genotypes",
    "simulated_track",
]
