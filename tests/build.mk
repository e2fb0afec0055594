# Tests, benchmarks, the demonstration, and what they install.

HARNESS := $(call objects,tests/support/suite.c tests/support/unit.c tests/support/cuda-declarations.c)
# One program has all suites but those that replace functions of the daemon, the library or libc, each for itself.
OWN_PROGRAMS := allocations cache_dir client_heap client_shortage config_shortage decode filling hostile many_workers peer \
	pipeline plan producer served_fields shortage simulation slot_nodes token
SUITE_FILES := $(wildcard tests/unit/*/test_*.c tests/daemon/test_*.c)
SUITES := $(patsubst test_%.c,%,$(notdir $(SUITE_FILES)))
suite_objects = $(foreach s,$(1),$(call objects,$(filter %/test_$(s).c,$(SUITE_FILES))))
own_program = $(patsubst %,$(BUILD)/tests/test_%,$(filter $(OWN_PROGRAMS),$(1)))
unit_program = $(if $(filter-out $(OWN_PROGRAMS),$(1)),$(BUILD)/tests/suites)
TESTS := $(call own_program,$(SUITES)) $(call unit_program,$(SUITES))
TOOLS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/tools/*.c tests/bench/*.c tests/soak/*.c))
FUZZERS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
FAKECUDA := $(call objects,$(wildcard tests/fake/cuda/*.c) client/finish/convert-plan.c client/finish/mix-plan.c)
SHIMS := $(patsubst tests/fake/faults/%.c,$(BUILD)/tests/%.so,$(wildcard tests/fake/faults/*.c))
GPU_TOOLS := $(addprefix $(BUILD)/tests/gpu/,conformance trainer step cycle measure h2d)
FAKEDRIVERS := $(BUILD)/libfakecuda.so $(BUILD)/libfakecuda-old.so

##@ Test

.PHONY: check check-all check-faults check-c check-layers check-python check-asan check-tsan fuzz soak tests c-tests
# Targets that install, build and then run something build on all processors, unless -j says otherwise.
BUILDING = $(MAKE) -s --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
check: ## Installs what is missing, builds, runs the tests, in about ten minutes; ends with what was skipped and Check's and pytest's totals
	@tests/setup/plan $(BUILD) $(PYTHON)
	@$(MAKE) -s --no-print-directory setup
	@$(BUILDING) all tests
	@tests/run/check $(BUILD) $(PYTHON)
check-all: ## All of it, before a release: the long tests, sanitizers, fuzzing, the wheel, other programs and systems, endurance (two hours); PARTS="tsan soak" picks parts
	@tests/run/check-all $(BUILD) $(PYTHON) $(PARTS)

# What the C tests need; tests adds what the Python tests need.
c-tests: $(TESTS) $(FAKEDRIVERS) $(BUILD)/tests/batchd-nocuda
tests: c-tests $(TOOLS) $(GPU_TOOLS) $(SHIMS)
# Two that start no thread would take half of ThreadSanitizer's time; what they test runs in the workers of test_pool and test_daemon, too.
UNTHREADED := $(if $(findstring thread,$(SANITIZE)),scan decode)
# T="stream pool" picks suites, T=stream:seek the tests of one whose names contain "seek".
CHOSEN := $(or $(T),$(filter-out $(UNTHREADED),$(SUITES)))
chosen_suites := $(foreach t,$(CHOSEN),$(firstword $(subst :, ,$(t))))
check-c: $(call own_program,$(chosen_suites)) $(call unit_program,$(chosen_suites)) $(FAKEDRIVERS) $(BUILD)/tests/batchd-nocuda ## C tests only; T=stream: only test_stream.c; T=stream:seek: its tests with "seek" in their names; SANITIZE=address,undefined or SANITIZE=thread: under that sanitizer
	@tests/run/c $(BUILD) $(CHOSEN)
check-layers: all ## Calls and includes go down, and in no circle: reads what the compiler made
	@tests/layers $(BUILD)
check-python: all tests venv ## Python tests only; ARGS="-k name" goes to pytest
	@tests/run/python $(BUILD) $(ARGS)
check-asan: ## C tests under AddressSanitizer and UndefinedBehaviorSanitizer (build-asan/)
	@$(MAKE) -s --no-print-directory SANITIZE=address,undefined check-c
check-tsan: ## C tests under ThreadSanitizer (build-tsan/)
	@$(MAKE) -s --no-print-directory SANITIZE=thread check-c
soak: setup ## Endurance: trainers and daemons killed a thousand times, a day's worth of samples; ARGS="--quick --only NAME"
	@$(BUILDING) all tests
	@$(MAKE) -s --no-print-directory venv
	@tests/soak/run $(BUILD) $(ARGS)
check-faults: all tests venv ## Python tests with interrupted, partial and refused system calls; FAULTS="eintr=8,short=4,again=8"
	@FAULTS=$${FAULTS:-eintr=8,short=4,again=8} LD_PRELOAD=$(abspath $(BUILD))/tests/faultinject.so tests/run/python $(BUILD) $(ARGS)
fuzz: ## Fuzz targets, FUZZ_TIME=10 seconds or FUZZ_RUNS=1000000 each; needs clang (build-fuzz/)
	@tests/setup/packages --with fuzz
	@$(MAKE) -s --no-print-directory BUILD=build-fuzz CC=clang SANITIZE=address,undefined FUZZER=1 run-fuzzers
.PHONY: run-fuzzers
run-fuzzers: $(FUZZERS)
	@tests/run/fuzz $(BUILD) $(FUZZERS)
ifeq ($(FUZZER),1)
DEFS += -fsanitize=fuzzer-no-link -DFUZZING=1
endif

# test_driver compares our declarations with NVIDIA's where they are installed.
$(BUILD)/tests/unit/gpu/test_driver.o $(BUILD)/tests/support/cuda-declarations.o: ALL_CFLAGS += -isystem $(CUDA_HOME)/include
$(BUILD)/tests/tools/convert-plan: $(BUILD)/client/finish/convert-plan.o
MIXING := $(addprefix $(BUILD)/client/finish/,mix-spec.o mix-draw.o finish.o c.o avx2.o avx512.o convert-plan.o mix-plan.o)
$(BUILD)/tests/tools/mix $(BUILD)/tests/tools/mix-plan $(BUILD)/tests/bench/mixing $(BUILD)/tests/fuzz/fuzz_mix: $(MIXING)
# Suites that call what is not in the library by name link its objects. A suite that defines a name for all to see (sendmsg, malloc) would give
# it to all others, too, so it has to be in OWN_PROGRAMS.
UNIT := $(call suite_objects,$(filter-out $(OWN_PROGRAMS),$(SUITES)))
$(BUILD)/tests/suites: $(UNIT) $(HARNESS) $(MIXING) $(BUILD)/client/link/names.o $(BUILD)/client/link/backoff.o $(BUILD)/libbatchd.a $(BUILD)/libdaemon.a Makefile | $(BUILD)/batchd
	@! nm -gA --defined-only $(UNIT) | grep -v ' [A-Za-z] _' || { echo "these suites define names that others would get: add them to OWN_PROGRAMS" >&2; exit 1; }
	$(LINK) $(filter-out Makefile,$^) $(CHECK_LIBS) $(LIBS)
$(BUILD)/tests/test_served_fields: $(BUILD)/client/link/arrays.o
$(BUILD)/tests/test_client_heap: $(CLIENT)
$(foreach s,$(filter $(OWN_PROGRAMS),$(SUITES)),$(eval $(BUILD)/tests/test_$(s): $(call suite_objects,$(s))))
$(BUILD)/tests/test_%: $(HARNESS) $(BUILD)/libbatchd.a $(BUILD)/libdaemon.a
	$(LINK) $(filter %.o,$^) $(filter %.a,$^) $(CHECK_LIBS) $(LIBS)
# The simulated world has the pool, the sockets and the clock under their own names; in front of the library they are the ones taken.
SIMULATION := $(call objects,tests/daemon/test_simulation.c tests/support/suite.c $(wildcard tests/sim/*.c))
$(BUILD)/tests/test_simulation: $(SIMULATION) $(BUILD)/libdaemon.a
	$(LINK) -Wl,--wrap=close,--wrap=slab_init,--wrap=slab_init_open,--wrap=slab_seal,--wrap=slab_extend,--wrap=slab_finish,--wrap=slab_release,--wrap=large_batch_create,--wrap=ring_create,--wrap=ring_unmap $^ $(CHECK_LIBS) $(LIBS)
# For LD_PRELOAD, into programs with or without sanitizers.
$(BUILD)/tests/%.so: tests/fake/faults/%.c
	@mkdir -p $(@D)
	$(call say,LINK) $(CC) -std=gnu11 -D_GNU_SOURCE -O2 -fPIC -shared $(WARN) -o $@ $< -ldl
$(BUILD)/tests/test_client_shortage: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=open_memstream,--wrap=asprintf,--wrap=mmap
$(BUILD)/tests/test_config_shortage: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=reallocarray,--wrap=strdup
$(BUILD)/tests/test_shortage: LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=strdup,--wrap=mmap,--wrap=memfd_create,--wrap=fallocate
$(BUILD)/tests/test_slot_nodes: LDFLAGS += -Wl,--wrap=numa_place
$(BUILD)/tests/test_many_workers: LDFLAGS += -Wl,--wrap=numa_place,--wrap=dataset_read,--wrap=dataset_is_current,--wrap=filling_may
$(BUILD)/tests/tools/%: $(BUILD)/tests/tools/%.o $(OLD_GLIBC) $(BUILD)/libbatchd.a $(BUILD)/libdaemon.a
	$(LINK) $^ $(LIBS)
$(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(BUILD)/libbatchd.a $(BUILD)/libdaemon.a
	$(LINK) $^ $(LIBS)
# By hand: needs libraries that nothing else here does.
$(BUILD)/tests/bench/libraries/png-isal: tests/bench/libraries/png.c
$(BUILD)/tests/bench/libraries/%: tests/bench/libraries/%.c $(BUILD)/libdaemon.a
	@mkdir -p $(@D)
	$(LINK) $(ALL_CFLAGS) $(filter %.c,$^) $(filter %.a,$^) $(LIBS) -lspng -lisal -ldeflate
$(BUILD)/tests/soak/%: $(BUILD)/tests/soak/%.o $(BUILD)/libbatchd.a $(BUILD)/libdaemon.a
	$(LINK) $^ $(LIBS)
$(BUILD)/tests/fuzz/fuzz_arrays: $(BUILD)/client/link/arrays.o $(BUILD)/client/link/names.o $(BUILD)/client/link/error.o # not in the library by name
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/libbatchd.a $(BUILD)/libdaemon.a
	$(LINK) -fsanitize=fuzzer $^ $(LIBS)
# The fake driver, for $BATCHD_LIBCUDA (tests/fake/cuda/README.md), and the same as an older driver would be.
$(FAKECUDA): VISIBILITY := default
$(BUILD)/libfakecuda.so: $(FAKECUDA) $(OLD_GLIBC) tests/fake/cuda/fakecuda.map
	$(LINK) -shared -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,--version-script,tests/fake/cuda/fakecuda.map $(FAKECUDA) $(OLD_GLIBC) -lm -pthread
$(BUILD)/libfakecuda-old.so: $(FAKECUDA) $(OLD_GLIBC) tests/fake/cuda/old-driver.map
	$(LINK) -shared -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,--version-script,tests/fake/cuda/old-driver.map $(FAKECUDA) $(OLD_GLIBC) -lm -pthread
# STATIC_DEPS=1 needs $(OLD_GLIBC) here, too: its linker flags wrap functions of the C library in whatever is linked.
$(BUILD)/tests/gpu/measure: $(BUILD)/tests/gpu/measure.o $(BUILD)/tests/gpu/cuda.o $(OLD_GLIBC) $(filter $(BUILD)/client/finish/convert-plan.o $(BUILD)/client/finish/fatbin%,$(CLIENT)) $(BUILD)/libdaemon.a
	$(LINK) $^ $(LIBS) -ldl
CONFORMANCE := $(call objects,$(wildcard tests/gpu/cases/*.c) tests/gpu/cuda.c)
$(BUILD)/tests/gpu/conformance: $(CONFORMANCE) $(OLD_GLIBC)
	$(LINK) $^ -lm -ldl -pthread
$(BUILD)/tests/gpu/%: $(BUILD)/tests/gpu/%.o $(BUILD)/tests/gpu/cuda.o $(OLD_GLIBC) $(BUILD)/libbatchd.a
	$(LINK) $^ $(CLIENT_LIBS) -lm -ldl
.PRECIOUS: $(BUILD)/%.o

##@ Try and measure

.PHONY: demo bench bench-peers bench-tools pictures tune-picture
demo: setup ## Two ranks train from one loader on sample data (or DATA=DIR, an image folder); ends with a table; TORCH=1 installs PyTorch for it
	@$(BUILDING) all
	@SETUP=$(SETUP) TORCH=$(TORCH) tests/demo/run $(BUILD) $(if $(DATA),--data "$(DATA)") $(ARGS)
pictures: all setup ## The documents' picture, by batchctl preview, of drawn scenes; of the image folder DATA=DIR into OUT=build/preview.jpg
	@tests/setup/with-pillow $(BUILD) $(PYTHON) tests/demo/pictures.py $(BUILD) "$(or $(OUT),$(if $(DATA),$(BUILD)/preview.jpg,client/python/pictures/preview.jpg))" $(if $(DATA),"$(DATA)")
tune-picture: all venv ## The documents' picture of batchctl tune, measured on this machine, which ought to be idle; of DATA=DIR into OUT=build/tune.svg
	@[ -n "$(DATA)" ] || [ -d $(BUILD)/train ] || $(BUILD)/batchctl sample-data $(BUILD)/train
	@cd $(BUILD) && ./batchctl tune $(or $(DATA),train) --python venv/bin/python --svg $(abspath $(or $(OUT),$(if $(DATA),$(BUILD)/tune.svg,client/python/pictures/tune.svg))) $(ARGS)
bench: setup ## batchd and its peers in turn: table and plot; DATA=DIR, ARGS="--quick --only NAME --json FILE"
	@$(BUILDING) all bench-tools
	@tests/bench/run $(BUILD) $(if $(DATA),--data "$(DATA)") $(ARGS)
bench-tools: $(filter $(BUILD)/tests/bench/% %/render,$(TOOLS))
bench-peers: setup ## Installs what bench compares with (PyTorch, DALI, SPDL, FFCV ...; 3 GB) into build/bench-venv
	@tests/bench/install-peers $(BUILD) $(PYTHON)

.PHONY: check-gpu bench-gpu gpu-carry gpu-programs
# What these run on a GPU: no C tests, whose building takes longer than all of this.
gpu-programs: all $(GPU_TOOLS) $(FAKEDRIVERS) $(BUILD)/tests/tools/gpu-trainer
check-gpu: ## All GPU checks; without a GPU those that the fake driver can answer; FAKE=1: every step on the fake driver
	@$(BUILDING) gpu-programs
	@BATCHD_BUILD=$(BUILD) tests/gpu/run check
bench-gpu: ## Measures on a GPU into tests/gpu/RESULTS.md; without one it says so; FAKE=1: every measurement on the fake driver
	@$(BUILDING) gpu-programs
	@BATCHD_BUILD=$(BUILD) tests/gpu/run --results tests/gpu measure
gpu-carry: ## Everything that a run on another machine's GPU needs, in .gpu/ (built in build-carry/; tests/gpu/README.md)
	@tests/gpu/carry --ready
	@$(BUILDING) STATIC_DEPS=1 CUDA=1 BUILD=build-carry gpu-programs
	@tests/gpu/carry build-carry .gpu

##@ Other

.PHONY: setup venv frameworks format check-format compile_commands.json
setup: ## Installs missing packages with apt, saying which and why; silent when all are there; SETUP=0: installs nothing
	$(if $(filter 0,$(SETUP)),,@tests/setup/packages)
venv:
	@tests/setup/venv $(BUILD) $(PYTHON)
frameworks: venv ## Installs Lightning, Accelerate, transformers, timm, ignite and JAX (500 MB) into build/frameworks-venv: the checks then run them, too
	@tests/setup/frameworks-venv $(BUILD) $(PYTHON)
format: ## Formats C and Python, and mends what ruff can; installs clang-format and ruff into build/format-venv
	@tests/setup/format-venv $(BUILD) $(PYTHON)
	@tests/setup/format $(BUILD) --fix
check-format: ## Fails where the formatters would change a file, or ruff has a complaint
	@tests/setup/format-venv $(BUILD) $(PYTHON)
	@tests/setup/format $(BUILD)
compile_commands.json: ## How each file is compiled, for clangd and editors
	@$(MAKE) -nB --no-print-directory V=1 all tests $(addsuffix .o,$(FUZZERS)) | $(PYTHON) tests/setup/compile-commands >$@
