# `make demo` shows the product on this machine, `make test` runs everything, `make lint` reads the code.
# Both make their own .venv. torch comes in its own pip call: TORCH=... chooses another one.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DEMO := build/demo

.PHONY: demo test lint format env clean

env: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install "$(TORCH)"
	$(PIP) install -e ".[dev]"
	touch $@

demo: env
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@echo "== this machine: distdoctor env"
	$(BIN)/distdoctor env --fail-on never -o $(DEMO)/host.md -o $(DEMO)/host.html -o $(DEMO)/host.json -o $(DEMO)/host.txt
	@echo
	@echo "== 4 ranks, one of them with another NCCL_ALGO: torchrun ... distdoctor env"
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m torch.distributed.run --standalone --nproc-per-node 4 \
	  --no-python tests/wrap.sh distdoctor env --fail-on never \
	  -o $(DEMO)/job.md -o $(DEMO)/job.html -o $(DEMO)/job.json -o $(DEMO)/job.txt
	@echo
	@echo "== the network between 4 ranks: distdoctor nccl-bench"
	$(BIN)/distdoctor nccl-bench --launch 4 --fail-on never --max-bytes 4M --time-limit 30s \
	  -o $(DEMO)/bench.md -o $(DEMO)/bench.html -o $(DEMO)/bench.json -o $(DEMO)/bench.txt
	@echo
	@echo "== would it fit? distdoctor oom estimate"
	$(BIN)/distdoctor oom estimate --model llama3-70b --on 64xh100-80gb --mesh dp_shard=8,tp=8 --compare --fail-on never \
	  -o $(DEMO)/memory.md -o $(DEMO)/memory.html -o $(DEMO)/memory.json -o $(DEMO)/memory.txt
	@echo
	@echo "== what torch's own code allocates, without a GPU: distdoctor oom simulate"
	$(BIN)/distdoctor oom simulate --model llama3-8b --on 8xa100-40gb --fail-on never \
	  -o $(DEMO)/simulated.md -o $(DEMO)/simulated.html -o $(DEMO)/simulated.json -o $(DEMO)/simulated.txt
	@echo
	@echo "== what would make it fit: distdoctor oom fit"
	$(BIN)/distdoctor oom fit $(DEMO)/simulated.json --fail-on never \
	  -o $(DEMO)/fit.md -o $(DEMO)/fit.html -o $(DEMO)/fit.json -o $(DEMO)/fit.txt
	@echo
	@echo "== the same strategies on real ranks: distdoctor oom reproduce"
	$(BIN)/distdoctor oom reproduce --launch 2 --model tiny --strategy ddp,fsdp2,tp --fail-on never \
	  -o $(DEMO)/ranks.md -o $(DEMO)/ranks.html -o $(DEMO)/ranks.json -o $(DEMO)/ranks.txt
	@echo
	@echo "== a job of 4 ranks, one of them slow, by the traces that it wrote: distdoctor straggler analyze"
	@mkdir -p $(DEMO)/traces
	$(BIN)/python -m torch.distributed.run --standalone --nproc-per-node 4 scripts/slow_rank_job.py $(DEMO)/traces 2 2>/dev/null
	$(BIN)/distdoctor straggler analyze $(DEMO)/traces --fail-on never \
	  -o $(DEMO)/slow.md -o $(DEMO)/slow.html -o $(DEMO)/slow.json -o $(DEMO)/slow.txt
	@echo
	@echo "== what an error really says: distdoctor oom explain"
	@printf '%s\n' '[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.02 GiB is free. Process 4711 has 31.40 GiB memory in use. Including non-PyTorch memory, this process has 46.72 GiB memory in use. Of the allocated memory 44.90 GiB is allocated by PyTorch, and 310.00 MiB is reserved by PyTorch but unallocated.' >$(DEMO)/rank3.log
	$(BIN)/distdoctor oom explain $(DEMO)/rank3.log --fail-on never
	@echo
	@ls -l $(DEMO)

test: lint
	bash scripts/run_tests.sh $(BIN)

lint: env
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/mypy

format: env
	$(BIN)/ruff format src tests benchmarks scripts
	$(BIN)/ruff check --fix src tests benchmarks scripts

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
