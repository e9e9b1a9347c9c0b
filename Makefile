# Everything here also works without make: see scripts/.
.PHONY: bench check crashes docs explore format lock schedules test

check: ## format, lint, types, imports, sizes, tests
	@scripts/test

format: ## rewrite the files in the project's format
	@scripts/setup dev
	@.venv/bin/ruff check --quiet --fix-only .
	@.venv/bin/ruff format .

test: ## the tests alone; K=words picks some, as in pytest -k
	@scripts/setup dev
	@.venv/bin/pytest $(if $(K),-k '$(K)')

docs: ## write docs/reference from the code
	@scripts/setup dev
	@.venv/bin/python scripts/reference.py

explore: ## the slow suites, at length; K=words picks some, as in pytest -k (kills: real runs, killed and resumed)
	@RETINUE_LONG=1 scripts/explore $(if $(K),-k '$(K)')

crashes: ## kill every crash scenario at every point; K=words picks some
	@RETINUE_LONG=1 scripts/explore tests/crashes $(if $(K),-k '$(K)')

schedules: ## delegation in thousands of orders of events; N=count for each scenario, K=words picks some
	@RETINUE_LONG=1 RETINUE_SCHEDULES=$(N) scripts/explore tests/testing/schedules $(if $(K),-k '$(K)')

bench: ## measure speed and size beside a floor; W=words picks scenarios (bench/README.md)
	@scripts/setup dev
	@.venv/bin/python bench/run.py $(W)

lock: ## pin the newest allowed packages into requirements/
	@scripts/lock --upgrade
