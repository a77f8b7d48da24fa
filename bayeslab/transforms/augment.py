"""augment(): programs with variables that make the rest of them Normal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution
from numpyro.primitives import Messenger

from bayeslab.distributions.mixing.hinge import HingeLoss
from bayeslab.distributions.mixing.polya_gamma import PolyaGamma
from bayeslab.distributions.mixing.truncated_normal import BernoulliProbit, TruncatedNormal
from bayeslab.programs.missing.missing_data import Guarded, element_mask
from bayeslab.programs.program import Program
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.transforms.transformed_program import TransformedProgram


def augment(model: Program) -> "Augmented":
    """The program with auxiliary variables, given which more of it is Normal; the law of all other sites is the same.

    | site y | gets | given which |
    |---|---|---|
    | Bernoulli, Binomial, NegativeBinomial with logits | y_omega, PolyaGamma | it is Normal in its logits |
    | BernoulliProbit | y_utility, TruncatedNormal | it is Normal in its predictor |
    | Laplace | y_variance, Exponential | it is Normal |
    | StudentT | y_precision, Gamma | it is Normal |
    | AsymmetricLaplace, AsymmetricLaplaceQuantile | y_mixing, Exponential | it is Normal |
    | `bayeslab.distributions.hinge_factor` | y_mixing, Gamma | it is Normal in its margin |

    The utility of a probit is how far its latent normal variable is from zero, on the side that y says.
    So `Gibbs`, `EM` and `MeanField` apply to logistic regression, the Bayesian lasso, robust and quantile regression
    and the support vector machine. Where the
    program asks for it, by `scale` or by a plate that is subsampled, sites keep their density.
    The result has the arguments of `model`, and may be called as a NumPyro program. Equal arguments give equal
    programs, so a second fit compiles nothing.
    Polson, Scott and Windle (2013), Journal of the American Statistical Association 108, 1339-1349; Albert and Chib
    (1993), the same 88, 669-679; Andrews and Mallows (1974), Journal of the Royal Statistical Society B 36, 99-102;
    Kozumi and Kobayashi (2011), Journal of Statistical Computation and Simulation 81, 1565-1578; Polson and Scott
    (2011), Bayesian Analysis 6, 1-24.
    Raises TypeError for what is no program.
    """
    if not callable(model):
        raise TypeError(f"augment takes a program, not {type(model).__name__}")
    return model if isinstance(model, Augmented) else Augmented(model)


@dataclass(frozen=True)
class Augmented(TransformedProgram):
    """A program with auxiliary variables for its sites, where there are any."""

    @property
    def __name__(self) -> str:
        return f"{self.model_name} augmented"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with AugmentHandler():
            return self.model(*args, **kwargs)


class AugmentHandler(Messenger):
    """A handler that draws auxiliary variables beside the sites of a program."""

    def process_message(self, msg: dict[str, Any]) -> None:
        """A site that is a mixture of Normals becomes a Normal, given a variable that is drawn before it."""
        if msg["type"] != "sample" or msg["scale"] is not None:
            return
        fn, inner = msg["fn"], _innermost(msg["fn"])
        if element_mask(fn) is not True:
            return
        if isinstance(inner, HingeLoss):
            half = jnp.full(fn.batch_shape, 0.5)
            msg["fn"] = dist.Unit(inner.mixture_log_factor(_draw_beside(msg, "mixing", dist.Gamma(half, half))))
        elif (mixture := _normal_mixture(inner)) is not None:
            what, of_mixing, normal = mixture
            mixing = _draw_beside(msg, what, of_mixing.expand(fn.shape()))
            msg["fn"] = normal(mixing).to_event(fn.event_dim)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        """After a site of yes or no, or of counts, follows a variable that depends on its value and its predictor."""
        if msg["type"] != "sample" or msg["scale"] is not None:
            return
        fn, inner = msg["fn"], _innermost(msg["fn"])
        if isinstance(inner, BernoulliProbit):
            away = jnp.where(element_mask(fn), (2 * msg["value"] - 1) * inner.predictor, 0.0)
            _draw_beside(msg, "utility", TruncatedNormal(jnp.broadcast_to(away, fn.shape()), 1.0, low=0.0))
        count = _num_trials(inner, msg["value"])
        if count is None:
            return
        present = element_mask(fn)
        tilt = jnp.broadcast_to(jnp.where(present, _logits(inner), 0.0), fn.shape())
        counted = present is True or isinstance(count, float)
        _draw_beside(msg, "omega", PolyaGamma(count if counted else jnp.where(present, count, 1.0), tilt))


def _innermost(fn: Distribution) -> Distribution:
    """The innermost distribution, also of one whose support is checked because it is latent."""
    inner = innermost_distribution(fn)
    return innermost_distribution(inner.base_dist) if isinstance(inner, Guarded) else inner


def _normal_mixture(inner: Distribution) -> tuple[str, Distribution, Callable[[Array], Distribution]] | None:
    """The variable given which a distribution is Normal, by name and distribution, and that Normal; None for others."""
    if isinstance(inner, dist.Laplace):
        variance = dist.Exponential(1 / (2 * inner.scale**2))
        return "variance", variance, lambda at: dist.Normal(inner.loc, jnp.sqrt(at))
    if isinstance(inner, dist.StudentT):
        precision = dist.Gamma(inner.df / 2, inner.df / 2)
        return "precision", precision, lambda at: dist.Normal(inner.loc, inner.scale / jnp.sqrt(at))
    if isinstance(inner, dist.AsymmetricLaplace | dist.AsymmetricLaplaceQuantile):
        right, left = _tail_scales(inner)
        drift, spread = right - left, 2 * right * left * inner.scale

        def normal(at: Array) -> Distribution:
            return dist.Normal(inner.loc + drift * at, jnp.sqrt(spread * at))

        return "mixing", dist.Exponential(1 / inner.scale), normal
    return None


def _tail_scales(inner: Distribution) -> tuple[Array, Array]:
    """The scales of the right and the left tail of an asymmetric Laplace distribution, in units of its own scale."""
    if isinstance(inner, dist.AsymmetricLaplace):
        return 1 / inner.asymmetry, inner.asymmetry
    return 1 / inner.quantile, 1 / (1 - inner.quantile)


def _draw_beside(msg: dict[str, Any], what: str, auxiliary: Distribution) -> Array:
    """A draw of an auxiliary variable, one for every element of a site, named after it."""
    dims = (msg["infer"] or {}).get("event_dims")
    infer = {"event_dims": dims} if dims else {}
    event_dim = len(auxiliary.batch_shape) - len(msg["fn"].batch_shape)
    return numpyro.sample(f"{msg['name']}_{what}", auxiliary.to_event(event_dim), infer=infer)


def _num_trials(inner: Distribution, value: Any) -> Any:
    """The concentration of the Polya-Gamma variable of a site; None where it has none."""
    if isinstance(inner, dist.BernoulliLogits):
        return 1.0
    if isinstance(inner, dist.BinomialLogits):
        return jnp.asarray(inner.total_count, float)
    if isinstance(inner, dist.NegativeBinomialLogits):
        return inner.total_count + value
    if isinstance(inner, dist.NegativeBinomial2):
        return inner.concentration + value
    return None


def _logits(inner: Distribution) -> Array:
    """The log odds of a site."""
    if isinstance(inner, dist.NegativeBinomial2):
        return jnp.log(inner.mean / inner.concentration)
    return inner.logits
