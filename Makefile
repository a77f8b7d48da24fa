# Every target sets up what it needs: uv, Python, the locked dependencies and bayeslab itself, editable.
# Nothing but Python 3 and make has to be there.

# A uv that does not answer (a shim of pyenv for another Python) is no uv.
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo .tools/bin/uv)
LOCAL_UV := $(filter .tools/bin/uv,$(UV))

# Pythons that pyenv manages come first, the newest before the others: its shims hide what .python-version does not select.
PYENV = $$(pyenv root 2>/dev/null || echo "$${PYENV_ROOT:-$$HOME/.pyenv}")
WITH_PYTHONS = PATH="$$(ls -d "$(PYENV)"/versions/*/bin 2>/dev/null | sort -rV | tr '\n' ':')$$PATH"

LOCK := --quiet --universal --python-version 3.12 --upgrade --no-header --no-annotate
PARALLEL := -n 2 --dist worksteal
STEPS := environment lint types tests notebooks

export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.jax_cache
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
export MPLBACKEND := agg

# Two processes share the cores in these: threads of BLAS would wait for each other.
tests notebooks: export OPENBLAS_NUM_THREADS := 1

.PHONY: demo test $(STEPS) tables slow test-gpu test-3.12 calibration catalogue bench docs docs-check lock

demo: .venv/.ready
	.venv/bin/bayeslab demo linear_regression

# What CI runs, with the seconds each step takes.
test:
	@for step in $(STEPS); do \
	    start=$$(date +%s); \
	    $(MAKE) --no-print-directory $$step || exit 1; \
	    echo "-- $$step: $$(($$(date +%s) - start)) s"; \
	done

environment: .venv/.ready

lint: .venv/.ready
	.venv/bin/ruff check
	.venv/bin/ruff format --check

types: .venv/.ready
	.venv/bin/mypy

# A tenth of the time of tests goes into optimising programs that run once; `make slow` runs them as users do.
tests: .venv/.ready
	XLA_FLAGS=--xla_backend_optimization_level=0 .venv/bin/pytest -m "not slow" --durations 10 $(PARALLEL)

LONG_NOTEBOOKS := $(addprefix notebooks/, classification.ipynb clusters.ipynb decisions.ipynb \
    dirichlet_multinomial.ipynb elimination.ipynb gp_regression.ipynb graphs.ipynb mcmc_vs_vi.ipynb monte_carlo.ipynb \
    normal_wishart.ipynb particle_filter.ipynb structure.ipynb your_own_model.ipynb)
NOTEBOOKS := $(filter-out $(LONG_NOTEBOOKS), $(wildcard notebooks/*.ipynb))

# All but those that take long or do what others do on other models: `make slow` runs these.
notebooks: .venv/.ready
	@rm -rf build/notebooks
	@printf '%s\n' $(NOTEBOOKS) | xargs -P 2 -I {} env -u MPLBACKEND .venv/bin/jupyter nbconvert \
	    --to notebook --execute --ExecutePreprocessor.record_timing=False --output-dir build/notebooks {}

# What takes longest in the notebooks; they read it.
tables: .venv/.ready
	@rm -f notebooks/tables/*.nc
	.venv/bin/jupyter nbconvert --to notebook --execute --output-dir build/notebooks \
	    notebooks/gaussian_hmm.ipynb notebooks/gp_regression.ipynb notebooks/structure.ipynb

slow: .venv/.ready
	.venv/bin/pytest -m slow --durations 10
	$(MAKE) --no-print-directory notebooks NOTEBOOKS="$(LONG_NOTEBOOKS)"

# Inference on a GPU, with the tolerances of CPUs; stops after six minutes. The environment needs jax[cuda12].
GPU_TESTS := $(addprefix tests/, distributions/test_block_scan.py distributions/test_linear_gaussian_chain.py \
    distributions/test_chains_with_zeros.py mixed_membership/test_acceptance.py methods/test_matrix_products.py \
    sampling/test_processors.py)

test-gpu: .venv/.ready
	JAX_PLATFORMS=cuda,cpu timeout 360 .venv/bin/pytest -m "not slow" --durations 10 $(GPU_TESTS)

test-3.12: .tools/python-3.12/.ready
	.tools/python-3.12/bin/pytest -m "not slow" $(PARALLEL)

# Writes docs/calibration.md: half an hour.
calibration: .venv/.ready
	.venv/bin/python benchmarks/calibration.py

# Writes docs/catalogue.md: minutes.
catalogue: .venv/.ready
	.venv/bin/python benchmarks/catalogue.py

# Writes the tables of benchmarks/README.md, beside the peers that are there: an hour and a half.
# ONLY="nuts.py gibbs.py" renews some. benchmarks/README.md says how to get peers.
bench: .venv/.ready
	.venv/bin/python benchmarks/renew.py $(ONLY)

docs: .venv/.docs
	.venv/bin/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build/html

# Reads the built site at four widths of the window, in the Chromium of the machine or that of `playwright install chromium`.
docs-check: docs
	.venv/bin/python docs/check.py docs/_build/html

lock: | $(LOCAL_UV)
	$(UV) pip compile $(LOCK) pyproject.toml --all-extras --group dev --output-file requirements.lock
	$(UV) pip compile $(LOCK) --group docs --constraints requirements.lock --output-file docs/requirements.lock

.venv/.ready: requirements.lock pyproject.toml | $(LOCAL_UV)
	$(call install,.venv,3.13,>=3.12)

.tools/python-3.12/.ready: requirements.lock pyproject.toml | $(LOCAL_UV)
	$(call install,.tools/python-3.12,3.12,3.12)

.venv/.docs: docs/requirements.lock .venv/.ready
	$(UV) pip install --quiet --python .venv --requirements docs/requirements.lock
	@touch $@

.tools/bin/uv:
	@echo "Installing uv into .tools"
	@$(WITH_PYTHONS) python3 -m venv .tools || { echo "uv or a working 'python3 -m venv' is needed" >&2; exit 1; }
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check uv

# An environment: its folder, the Python it should have, and any that will do; if there is none, uv fetches the first.
define install
@echo "Setting up $(1)"
@$(1)/bin/python --version >/dev/null 2>&1 || { rm -rf $(1); export $(WITH_PYTHONS); \
    $(UV) venv --quiet --no-python-downloads --python "$(2)" $(1) 2>/dev/null || \
    $(UV) venv --quiet --no-python-downloads --python "$(3)" $(1) 2>/dev/null || \
    $(UV) venv --quiet --python "$(2)" $(1); }
@$(UV) pip install --quiet --python $(1) --requirements requirements.lock
@$(UV) pip install --quiet --python $(1) --no-deps --no-build-isolation --editable .
@touch $(1)/.ready
endef
