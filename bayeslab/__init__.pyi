"""What `bayeslab` offers; each name is imported when it is used."""

from . import (
    control as control,
)
from . import (
    datasets as datasets,
)
from . import (
    distributed as distributed,
)
from . import (
    distributions as distributions,
)
from . import (
    graphical_models as graphical_models,
)
from . import (
    mixed_membership as mixed_membership,
)
from . import (
    models as models,
)
from . import (
    monte_carlo as monte_carlo,
)
from . import (
    particles as particles,
)
from . import (
    plots as plots,
)
from . import (
    populations as populations,
)
from . import (
    states as states,
)
from . import (
    supervised as supervised,
)
from . import (
    topics as topics,
)
from .calibration.geweke import joint_distribution_test as joint_distribution_test
from .calibration.rank_uniformity import calibration_verdict as calibration_verdict
from .calibration.sbc import sbc as sbc
from .diagnostics.align import align as align
from .diagnostics.compare import compare_posteriors as compare_posteriors
from .diagnostics.diagnose import diagnose as diagnose
from .diagnostics.modes import modes as modes
from .distributions import LinearGaussianChain as LinearGaussianChain
from .distributions import MarkovChain as MarkovChain
from .explaining import explain as explain
from .fitting import fit as fit
from .gaussian_processes import GaussianProcess as GaussianProcess
from .gaussian_processes import kernels as kernels
from .methods.em import EM as EM
from .methods.exact import Exact as Exact
from .methods.gibbs import Gibbs as Gibbs
from .methods.guides.automatic import (
    full_rank_normal as full_rank_normal,
)
from .methods.guides.automatic import (
    low_rank_normal as low_rank_normal,
)
from .methods.guides.automatic import (
    mean_field_normal as mean_field_normal,
)
from .methods.guides.automatic import (
    normalising_flow as normalising_flow,
)
from .methods.laplace import MAP as MAP
from .methods.laplace import Laplace as Laplace
from .methods.mcmc import MCMC as MCMC
from .methods.mcmc import NUTS as NUTS
from .methods.mean_field import MeanField as MeanField
from .methods.svi import (
    SVI as SVI,
)
from .prediction.decisions import decide as decide
from .prediction.gaussian_process import (
    process_at as process_at,
)
from .prediction.gaussian_process import (
    process_components as process_components,
)
from .prediction.gaussian_process import (
    process_draws as process_draws,
)
from .prediction.group_likelihood import log_likelihood as log_likelihood
from .prediction.predict import predict as predict
from .prediction.predict import simulate as simulate
from .program_graphs.drawing import graph as graph
from .programs.binding import bind as bind
from .reports.comparison_card import comparison_card as comparison_card
from .reports.result_report import report as report
from .results.joining import join as join
from .states.cross_validation import choose as choose
from .states.cross_validation import held_out as held_out
from .transforms.augment import augment as augment
from .transforms.collapse import collapse as collapse
from .transforms.draw_checks import FalseConditional as FalseConditional
from .transforms.recover import recover as recover
from .transforms.sufficient_statistics.compress import compress as compress

__version__: str
