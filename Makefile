# batchd: `make help` lists the targets.
#
#   folders   proto -> base -> image, dataset, gpu -> batch, config -> server -> watch -> daemon; client links none of them but proto
#             (and of daemon/gpu driver.c, the table of CUDA calls, vmm.c, memory that comes as a descriptor, and inherit.c)
#   BUILD     where everything goes; SANITIZE=... has a folder of its own beside it
#   names     every .c file of a folder belongs to what that folder makes, so a new file needs no edit here

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
VERSION := $(shell sed -n 's/^\#define BATCHD_VERSION "\(.*\)"/\1/p' client/batchd.h)
SO := libbatchd.so
INLINE_SO := libbatchd-inline.so
SOVERSION := 0

# ---- what a caller may set ----

CC ?= cc
CFLAGS ?= -O3 -g
PYTHON ?= python3
PREFIX ?= /usr/local
prefix ?= $(PREFIX)
exec_prefix ?= $(prefix)
bindir ?= $(exec_prefix)/bin
libdir ?= $(exec_prefix)/lib
includedir ?= $(prefix)/include
datarootdir ?= $(prefix)/share
mandir ?= $(datarootdir)/man
docdir ?= $(datarootdir)/doc/batchd
sysconfdir ?= /etc
unitdir ?= $(prefix)/lib/systemd/system
sysusersdir ?= $(prefix)/lib/sysusers.d
tmpfilesdir ?= $(prefix)/lib/tmpfiles.d
# fish itself looks in its own prefix, which is /usr, and in /etc; elsewhere only where $XDG_DATA_DIRS leads it.
fishdir ?= $(if $(filter /usr/local,$(prefix)),$(sysconfdir)/fish/completions,$(datarootdir)/fish/vendor_completions.d)

ifdef SANITIZE
BUILD ?= $(if $(findstring address,$(SANITIZE)),build-asan,$(if $(findstring thread,$(SANITIZE)),build-tsan,build-$(SANITIZE)))
SAN := -fsanitize=$(SANITIZE) -fno-omit-frame-pointer $(if $(findstring undefined,$(SANITIZE)),-fno-sanitize-recover=undefined)
endif
ifeq ($(FUZZER),1)
BUILD ?= build-fuzz
endif
ifeq ($(STATIC_DEPS),1)
BUILD ?= build-wheel
endif
BUILD ?= build

# ---- flags ----

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wno-sign-conversion
ifeq ($(WERROR),1)
WARN += -Werror
endif
PKGS := libuv libprotobuf-c libjpeg libpng zlib libzstd libwebp libwebpdemux yaml-0.1 jansson libxxhash
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
# STATIC_DEPS=1 links everything but the C library from archives. What it then has in it is in the linker's maps (client/python/wheel/linked.py).
# Of libgd only drawing and PNG are used, so what its other formats would need is left out.
ifeq ($(STATIC_DEPS),1)
link = -Wl,-Bstatic $(filter-out -pthread -lpthread -ldl -lrt -lm,$(shell pkg-config --static --libs $(1:libuv=libuv-static) 2>/dev/null)) -Wl,-Bdynamic
CTL_LIBS := -Wl,-Bstatic -lgd -lpng16 -lz -Wl,-Bdynamic
HTTP_LIBS := -Wl,-Bstatic -lmicrohttpd -Wl,-Bdynamic
LDFLAGS += -Wl,--as-needed -Wl,--exclude-libs,ALL -static-libgcc -Wl,-Map,$@.map
else
link = $(shell pkg-config --libs $(1) 2>/dev/null)
CTL_LIBS := $(call link,gdlib)
endif
LIBS := $(HTTP_LIBS) $(foreach p,$(PKGS),$(call link,$(p))) -lm -ldl -pthread
CLIENT_LIBS := $(call link,libprotobuf-c) -lm -ldl -pthread
CHECK_LIBS := $(shell pkg-config --libs check 2>/dev/null)
# Where a processor multiplies and adds in one step, compilers use that, and pixels come out differently than on x86-64.
FLOATS := $(if $(findstring x86_64,$(shell $(CC) -dumpmachine 2>/dev/null)),,-ffp-contract=off)
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE $(FLOATS) -fPIC -fvisibility=$(VISIBILITY) -pthread $(WARN) $(SAN) $(DEFS) $(CFLAGS) \
	-Idaemon -Iclient -Iproto -Itests -I$(BUILD)/proto $(PKG_CFLAGS)
VISIBILITY := hidden
# One short line per file; V=1 shows whole commands.
say = $(if $(V),,@printf '  %-4s %s\n' $(1) $@;)
COMPILE = $(call say,CC) $(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
LINK = $(call say,LINK) $(CC) $(SAN) $(CFLAGS) $(LDFLAGS) -o $@
ARCHIVE = $(call say,AR) rm -f $@ && $(AR) rcs $@

# ---- CUDA ----

# The finishing kernel is all that needs a CUDA toolkit, at build time only; the driver is looked for at run time. CUDA=1 builds everything, CUDA=copy all but the
# kernel, CUDA=0 a daemon that knows no GPUs at all. The default is 1 where there is nvcc, else copy.
CUDA_HOME ?= /usr/local/cuda
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA ?= $(if $(NVCC),1,copy)
# Machine code for these (of which nvcc knows), which runs on later ones of the same tens as well (80: 86, 89); the PTX of the oldest, from which a driver makes
# code for any other GPU, lies beside it. Tests run PTX only.
CUDA_ARCHS ?= $(if $(SAN),75,75 80 90 100 120)
ifeq ($(CUDA),1)
cuda_known := $(patsubst sm_%,%,$(filter $(addprefix sm_,$(CUDA_ARCHS)),$(shell $(NVCC) --list-gpu-code)))
NVCC_FLAGS ?= --threads 0 -std=c++17 -O3 --fmad=false $(foreach a,$(cuda_known),-gencode arch=compute_$(a),code=sm_$(a))
endif

# ---- sources ----

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
# All .c files of a folder and of those in it.
below = $(sort $(shell find $(1) -name '*.c'))
PROTO := $(call objects,$(wildcard proto/*.c)) $(BUILD)/proto/batchd.pb-c.o
# With (1) or without (0) GPUs: two sets of files behind one header.
daemon = $(call objects,$(filter-out daemon/main.c $(if $(filter 0,$(1)),daemon/gpu/gpus.c $(addprefix daemon/gpu/,copier.c errors.c thread.c work.c),daemon/gpu/gpus-none.c) \
	daemon/watch/http-library$(if $(filter 1,$(STATIC_DEPS)),,-linked).c, \
	$(call below,daemon)))
DAEMON := $(call daemon,$(CUDA))
CLIENT := $(call objects,$(filter-out client/finish/fatbin%,$(wildcard client/*.c $(patsubst %,client/%/*.c,link finish gpu loader))) \
	client/finish/$(if $(filter 1,$(CUDA)),fatbin,fatbin-none).c $(addprefix daemon/gpu/,driver.c vmm.c inherit.c))
INLINE := $(call objects,client/inline/inline.c)
ifeq ($(STATIC_DEPS),1)
INLINE_ARCHIVES := $(call objects,client/inline/archive-stdio.c) # for archives that were made for programs only
OLD_GLIBC := $(call objects,client/python/wheel/old-glibc.c)
LDFLAGS += -Wl,--wrap=exp,--wrap=log,--wrap=pow,--wrap=getdents64
endif
CTL := $(call objects,$(call below,client/ctl))
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
# The example with the CUDA runtime is for where that is.
CUDART := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart.so $(CUDA_HOME)/lib/libcudart.so))
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(if $(CUDART),$(wildcard client/examples/*.c),$(filter-out %_cuda.c,$(wildcard client/examples/*.c))))
FUZZERS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
LIBRARY := $(BUILD)/$(SO).$(VERSION) $(BUILD)/libbatchd.a $(BUILD)/$(INLINE_SO).$(VERSION)
FAKECUDA := $(call objects,$(wildcard tests/fake/cuda/*.c) client/finish/convert-plan.c client/finish/mix-plan.c)
SHIMS := $(patsubst tests/fake/faults/%.c,$(BUILD)/tests/%.so,$(wildcard tests/fake/faults/*.c))
GPU_TOOLS := $(addprefix $(BUILD)/tests/gpu/,conformance trainer step cycle measure h2d)
FAKEDRIVERS := $(BUILD)/libfakecuda.so $(BUILD)/libfakecuda-old.so

##@ Build

.PHONY: all
all: $(BUILD)/batchd $(BUILD)/batchctl $(LIBRARY) $(EXAMPLES) ## The daemon, batchctl, the client library and its examples, in build/

$(BUILD)/proto/batchd.pb-c.c $(BUILD)/proto/batchd.pb-c.h &: proto/batchd.proto | $(BUILD)/.packages
	@mkdir -p $(@D)
	$(call say,GEN) protoc-c --proto_path=proto --c_out=$(BUILD)/proto $<
$(BUILD)/proto/batchd.pb-c.o: $(BUILD)/proto/batchd.pb-c.c
	$(COMPILE) -w
$(BUILD)/%.o: %.c | $(BUILD)/proto/batchd.pb-c.h
	@mkdir -p $(@D)
	$(COMPILE)
# The daemon's version is the library's; it includes no header of the client for that.
$(BUILD)/daemon/watch/metrics.o: daemon/watch/metrics-page.html
$(BUILD)/daemon/watch/metrics.o: DEFS += -DMETRICS_PAGE='"daemon/watch/metrics-page.html"'
VERSIONED := $(BUILD)/daemon/daemon.o $(BUILD)/daemon/config/options.o
$(VERSIONED): DEFS += -DDAEMON_VERSION='"$(VERSION)"'
$(VERSIONED): client/batchd.h
# Once per build folder: are the libraries there? A compiler's "No such file" would not say which package has it.
$(BUILD)/.packages:
	@tests/setup/packages --check
	@mkdir -p $(BUILD)/proto && touch $@

# Everything of the daemon but main.c is one static library, which the daemon, batchctl and the tests link.
$(BUILD)/libdaemon.a: $(DAEMON) $(PROTO) $(BUILD)/.cuda
	$(ARCHIVE) $(DAEMON) $(PROTO)
$(BUILD)/batchd: $(BUILD)/daemon/main.o $(OLD_GLIBC) $(BUILD)/libdaemon.a
	$(LINK) $^ $(LIBS)
$(BUILD)/batchctl: $(CTL) $(INLINE) $(BUILD)/client/finish/mix-spec.o $(BUILD)/client/finish/mix-draw.o $(OLD_GLIBC) $(BUILD)/libbatchd.a $(BUILD)/libdaemon.a
	$(LINK) $^ $(CTL_LIBS) $(LIBS)
# What CUDA=0 makes, for a test: the same objects but one.
$(BUILD)/tests/batchd-nocuda: $(BUILD)/daemon/main.o $(call daemon,0) $(PROTO)
	@mkdir -p $(@D)
	$(LINK) $^ $(LIBS)

# The shared library exports what client/batchd.map lists. The static one is a single object in which everything else is local, so that
# nothing in it can clash with a name in somebody's program.
$(filter $(BUILD)/client/%,$(CLIENT)): VISIBILITY := default
$(BUILD)/$(SO).$(VERSION): $(CLIENT) $(PROTO) $(OLD_GLIBC) client/batchd.map $(BUILD)/.cuda
	$(LINK) -shared -Wl,-z,nodelete -Wl,-soname,$(SO).$(SOVERSION) -Wl,--version-script,client/batchd.map -Wl,--as-needed \
		$(if $(SAN),,-Wl,-z,defs) $(CLIENT) $(PROTO) $(OLD_GLIBC) $(CLIENT_LIBS)
	@ln -sf $(@F) $(BUILD)/$(SO).$(SOVERSION) && ln -sf $(@F) $(BUILD)/$(SO)
$(BUILD)/libbatchd.a: $(CLIENT) $(PROTO) $(BUILD)/.cuda
	@$(LD) -r -o $(BUILD)/libbatchd.o $(CLIENT) $(PROTO)
	@$(OBJCOPY) --localize-hidden --wildcard --keep-global-symbol='batchd_*' $(BUILD)/libbatchd.o
	$(ARCHIVE) $(BUILD)/libbatchd.o
# Decoders and pipelines for the calling thread. A library of its own, so that libbatchd.so does not carry them.
INLINE_LIBS = $(foreach p,libjpeg libpng zlib libwebp libwebpdemux jansson libxxhash,$(call link,$(p))) -lm -ldl -pthread
$(INLINE): VISIBILITY := default
$(BUILD)/$(INLINE_SO).$(VERSION): $(INLINE) $(INLINE_ARCHIVES) $(OLD_GLIBC) $(BUILD)/libdaemon.a client/batchd-inline.map
	$(LINK) -shared -Wl,-z,nodelete -Wl,-soname,$(INLINE_SO).$(SOVERSION) -Wl,--version-script,client/batchd-inline.map -Wl,--as-needed \
		-Wl,--gc-sections $(if $(SAN),,-Wl,-z,defs) $(INLINE) $(INLINE_ARCHIVES) $(OLD_GLIBC) $(BUILD)/libdaemon.a $(INLINE_LIBS)
	@ln -sf $(@F) $(BUILD)/$(INLINE_SO).$(SOVERSION) && ln -sf $(@F) $(BUILD)/$(INLINE_SO)
OBJCOPY ?= objcopy
# What CUDA is: changes only when it does, and then what depends on it is linked anew.
$(BUILD)/.cuda: places
	@mkdir -p $(BUILD) && echo $(CUDA) | cmp -s - $@ || echo $(CUDA) >$@
# What nvcc made on its way, the PTX, stays in finish/ for tests, and so does what ptxas says: a kernel that needs a stack is slower than it looks.
# Nothing is compressed: a driver reads what nvcc has compressed only if it is about as new (550 for CUDA 12, 580 for 13).
CONVERT := $(BUILD)/client/finish/convert
$(CONVERT).fatbin: $(addprefix client/finish/,convert.cu convert-plan.h mix.cuh mix-plan.h) client/batchd.h
	@rm -rf $(CONVERT) && mkdir -p $(CONVERT)
	$(call say,NVCC) help=$$($(NVCC) --help); case $$help in *--compress-mode*) plain=--compress-mode=none;; *--no-compress*) plain=--no-compress;; esac; \
		$(NVCC) $(NVCC_FLAGS) $$plain -Iclient --keep --keep-dir $(CONVERT) $(addprefix -Xptxas ,-v -warn-spills -warn-lmem-usage $(if $(filter 1,$(WERROR)),-Werror)) \
		-fatbin -o $@ $< >$(CONVERT)/log 2>&1 || { grep -v '^ptxas info\|^  ' $(CONVERT)/log >&2; exit 1; }
	@grep warning $(CONVERT)/log >&2; cd $(CONVERT) && rm -f *.ii *.cudafe1.* *.cubin *.module_id
# nvcc names its own version of PTX, which no older driver takes, though these kernels use nothing that was not in 7.0 (CUDA 11.0). So that is what is written
# there, if ptxas, which is what a driver has as well, agrees. A hint about bytes of a load that are not used is left out: it came with 8.3.
PTX_VERSION := 7.0
OLDEST_PTX = $$(ls $(CONVERT)/convert.compute_$(firstword $(cuda_known)).ptx $(CONVERT)/convert.ptx 2>/dev/null) # the second where nvcc compiles for one GPU only
$(CONVERT).ptx: $(CONVERT).fatbin
	@sed 's/^\.version .*/.version $(PTX_VERSION)/; /\.pragma "used_bytes_mask/d; /^\/\//d; /^[[:space:]]*$$/d' $(OLDEST_PTX) >$(@D)/lowered.ptx
	$(call say,NVCC) if $(NVCC) -arch=sm_$(firstword $(cuda_known)) -cubin -o /dev/null $(@D)/lowered.ptx && \
		$(NVCC) -arch=sm_$(lastword $(cuda_known)) -cubin -o /dev/null $(@D)/lowered.ptx; then mv $(@D)/lowered.ptx $@; \
	else echo "the kernels need a newer PTX than $(PTX_VERSION) with this nvcc: drivers older than its CUDA will not run them" >&2; cp $(OLDEST_PTX) $@; fi
$(BUILD)/client/finish/fatbin.o: $(CONVERT).fatbin $(CONVERT).ptx
$(BUILD)/client/finish/fatbin.o: DEFS += -DCONVERT_FATBIN='"$(CONVERT).fatbin"' -DCONVERT_PTX='"$(CONVERT).ptx"'
.PHONY: examples
examples: $(EXAMPLES) ## The client library's examples; train_cuda only where the CUDA runtime is
	$(if $(CUDART),,@echo "train_cuda is left out: there is no libcudart.so in $(CUDA_HOME) (CUDA_HOME names another place)")
$(BUILD)/client/examples/%_cuda: client/examples/%_cuda.c $(BUILD)/$(SO).$(VERSION)
	@mkdir -p $(@D)
	$(LINK) $(WARN) -Iclient -isystem $(CUDA_HOME)/include $< -L$(BUILD) -lbatchd $(CUDART) -Wl,-rpath,'$$ORIGIN/../..:$(dir $(CUDART))'
$(BUILD)/client/examples/%: client/examples/%.c $(BUILD)/$(SO).$(VERSION)
	@mkdir -p $(@D)
	$(LINK) $(WARN) -Iclient $< -L$(BUILD) -lbatchd -Wl,-rpath,'$$ORIGIN/../..'

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

##@ Install

SERVICES := $(addprefix $(BUILD)/,$(wildcard systemd/units/*.service))
# Pages that lead to what is not installed. Their links to manual pages become names, those to other files say where these are.
PAGES := $(addprefix $(BUILD)/doc/,README.md client/python/README.md $(wildcard client/python/guide/*.md))
RECIPES = $(sort $(shell find $(addprefix systemd/,containers contrib kubernetes monitoring slurm) -type f))
# What is installed: mode:source:destination. install and uninstall both read this list.
man = $(foreach page,$(1),644:$(page):$(mandir)/man$(patsubst .%,%,$(suffix $(page)))/$(notdir $(page)))
into = $(foreach file,$(2),644:$(file):$(1)/$(notdir $(file)))
INSTALLED = 755:$(BUILD)/batchd:$(bindir)/batchd 755:$(BUILD)/batchctl:$(bindir)/batchctl \
	755:$(BUILD)/$(SO).$(VERSION):$(libdir)/$(SO).$(VERSION) 644:$(BUILD)/libbatchd.a:$(libdir)/libbatchd.a \
	755:$(BUILD)/$(INLINE_SO).$(VERSION):$(libdir)/$(INLINE_SO).$(VERSION) \
	644:client/batchd.h:$(includedir)/batchd.h 644:client/batchd-inline.h:$(includedir)/batchd-inline.h 644:$(BUILD)/batchd.pc:$(libdir)/pkgconfig/batchd.pc \
	$(call man,$(wildcard daemon/man/*.[1-8] client/man/*.[1-8])) \
	$(foreach program,batchctl batchd, \
		644:client/completion/$(program).bash:$(datarootdir)/bash-completion/completions/$(program) \
		644:client/completion/_$(program):$(datarootdir)/zsh/site-functions/_$(program) \
		644:client/completion/$(program).fish:$(fishdir)/$(program).fish) \
	$(call into,$(unitdir),$(wildcard systemd/units/*.socket) $(SERVICES)) \
	644:systemd/units/batchd.sysusers:$(sysusersdir)/batchd.conf 644:systemd/units/batchd.tmpfiles:$(tmpfilesdir)/batchd.conf \
	$(call into,$(docdir),$(wildcard systemd/units/*.yaml systemd/units/*.conf) LICENSE) \
	$(foreach page,$(PAGES),644:$(page):$(docdir)/$(page:$(BUILD)/doc/%=%)) \
	$(foreach file,systemd/README.md $(RECIPES),$(if $(filter %.sh,$(file)),755,644):$(file):$(docdir)/$(file)) \
	$(call into,$(docdir)/client/examples,$(wildcard client/examples/*.c client/examples/*.py)) \
	$(call into,$(docdir)/client/python/pictures,$(wildcard client/python/pictures/*))

each = $(foreach f,$(INSTALLED),$(call $(1),$(word 1,$(subst :, ,$(f))),$(word 2,$(subst :, ,$(f))),$(DESTDIR)$(word 3,$(subst :, ,$(f)))))
define put
install -D -m $(1) $(2) $(3)

endef
define remove
rm -f $(3)

endef
SOLINKS = $(foreach so,$(SO) $(INLINE_SO),$(DESTDIR)$(libdir)/$(so).$(SOVERSION) $(DESTDIR)$(libdir)/$(so))

.PHONY: install uninstall
install: all $(BUILD)/batchd.pc $(SERVICES) $(PAGES) ## Into PREFIX=/usr/local; DESTDIR, bindir, libdir, mandir, unitdir ... as GNU has them
	$(call each,put)
	$(foreach so,$(SO) $(INLINE_SO),ln -sf $(so).$(VERSION) $(DESTDIR)$(libdir)/$(so).$(SOVERSION) && ln -sf $(so).$(VERSION) $(DESTDIR)$(libdir)/$(so);)
	$(if $(DESTDIR),,ldconfig 2>/dev/null || true)
uninstall: ## Removes what install put there; give it the same variables
	$(call each,remove)
	rm -f $(SOLINKS)
	find $(DESTDIR)$(docdir) -depth -type d -empty -delete 2>/dev/null || true
	$(if $(DESTDIR),,ldconfig 2>/dev/null || true)
# Files that name places; made anew each time, as the places may be others.
.PHONY: places
$(BUILD)/batchd.pc: client/batchd.pc.in places
	sed 's|@prefix@|$(prefix)|; s|@exec_prefix@|$(exec_prefix)|; s|@libdir@|$(libdir)|; s|@includedir@|$(includedir)|; s|@bindir@|$(bindir)|; s|@VERSION@|$(VERSION)|' $< >$@
$(BUILD)/systemd/%: systemd/% places
	@mkdir -p $(@D)
	sed 's|/usr/bin/batch|$(bindir)/batch|' $< >$@
$(BUILD)/doc/%.md: %.md Makefile
	@mkdir -p $(@D)
	sed 's,\[\([^]]*\)\]([^)]*/man/[^)]*),\1,g; s,\[\([^]]*\)\](\(\(tests\|daemon\|proto\|\.github\)/[^)]*\)),\1 (`\2` in the source),g' $< >$@

##@ Package

.PHONY: wheel wheel-programs check-wheel sdist deb
# What goes into a wheel besides Python.
wheel-programs: $(addprefix $(BUILD)/,batchd batchctl $(SO).$(VERSION) $(INLINE_SO).$(VERSION))
# MACHINE=aarch64 cross-compiles. SYSROOT is what is compiled against; empty: this machine's own C library and archives.
MACHINE ?= $(shell uname -m)
WHEEL_BUILD = $(if $(filter 1,$(STATIC_DEPS)),$(BUILD),build-wheel$(if $(filter $(shell uname -m),$(MACHINE)),,-$(MACHINE)))
SYSROOT ?= build-sysroot/$(MACHINE)
wheel: ## dist/batchd-*.whl: daemon, batchctl, library and Python package, for every Python on Linux with glibc 2.28 (build-wheel/); MACHINE=aarch64: for that, SYSROOT=: for this machine's glibc
	@$(PYTHON) client/python/wheel/backend.py --build $(WHEEL_BUILD) --sysroot "$(SYSROOT)" --machine $(MACHINE) wheel WERROR=$(WERROR) CUDA=$(CUDA)
check-wheel: wheel venv ## Installs the wheel into an empty environment, runs the demonstration from it, then the wheel's tests
	@tests/run/wheel $(BUILD) $(PYTHON)
sdist: ## dist/batchd-*.tar.gz: the sources, from which pip builds where the libraries are
	@$(PYTHON) client/python/wheel/backend.py sdist
deb: ## dist/*.deb: batchd, libbatchd0, libbatchd-dev, python3-batchd, for the Debian or Ubuntu that builds them
	@systemd/debian/build dist $(VERSION)

##@ Other

.PHONY: setup venv frameworks format check-format clean distclean help compile_commands.json
setup: ## Installs missing packages with apt, saying which and why; silent when all are there; SETUP=0: installs nothing
	$(if $(filter 0,$(SETUP)),,@tests/setup/packages)
venv:
	@tests/setup/venv $(BUILD) $(PYTHON)
frameworks: venv ## Installs Lightning, Accelerate, transformers, timm and ignite (300 MB) into build/frameworks-venv: the checks then run them, too
	@tests/setup/frameworks-venv $(BUILD) $(PYTHON)
format: ## Formats C and Python, and mends what ruff can; installs clang-format and ruff into build/format-venv
	@tests/setup/format-venv $(BUILD) $(PYTHON)
	@tests/setup/format $(BUILD) --fix
check-format: ## Fails where the formatters would change a file, or ruff has a complaint
	@tests/setup/format-venv $(BUILD) $(PYTHON)
	@tests/setup/format $(BUILD)
compile_commands.json: ## How each file is compiled, for clangd and editors
	@$(MAKE) -nB --no-print-directory V=1 all tests $(addsuffix .o,$(FUZZERS)) | $(PYTHON) tests/setup/compile-commands >$@
# What was installed from a package registry, and takes long to get again, stays.
clean: ## Removes what was built; keeps the Python environments in build/
	rm -rf build-asan build-tsan build-fuzz build-wheel build-wheel-* build-carry .gpu
	for build in build $(BUILD); do if [ -d $$build ]; then \
		find $$build -mindepth 1 -maxdepth 1 ! -name venv ! -name '*-venv' -exec rm -rf {} +; fi; done
distclean: ## Removes the build folders and all that is in them
	rm -rf build build-asan build-tsan build-fuzz build-wheel build-wheel-* build-carry .gpu build-sysroot dist $(BUILD)
help: ## This text
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z_.-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

-include $(shell find $(BUILD) -type f -name '*.d' -not -path '$(BUILD)/*venv/*' 2>/dev/null)
