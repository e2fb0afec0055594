# The client library, batchctl, the finishing kernels and the examples.

# Machine code for these (of which nvcc knows), which runs on later ones of the same tens as well (80: 86, 89); the PTX of the oldest, from which a driver makes
# code for any other GPU, lies beside it. Tests run PTX only.
CUDA_ARCHS ?= $(if $(SAN),75,75 80 90 100 120)
ifeq ($(CUDA),1)
cuda_known := $(patsubst sm_%,%,$(filter $(addprefix sm_,$(CUDA_ARCHS)),$(shell $(NVCC) --list-gpu-code)))
NVCC_FLAGS ?= --threads 0 -std=c++17 -O3 --fmad=false $(foreach a,$(cuda_known),-gencode arch=compute_$(a),code=sm_$(a))
endif

CLIENT := $(call objects,$(filter-out client/finish/fatbin%,$(wildcard client/*.c $(patsubst %,client/%/*.c,link finish gpu loader))) \
	client/finish/$(if $(filter 1,$(CUDA)),fatbin,fatbin-none).c $(addprefix daemon/gpu/,driver.c vmm.c inherit.c))
INLINE := $(call objects,client/inline/inline.c)
CTL := $(call objects,$(call below,client/ctl))
LIBRARY := $(BUILD)/$(SO).$(VERSION) $(BUILD)/libbatchd.a $(BUILD)/$(INLINE_SO).$(VERSION)
# The example with the CUDA runtime is for where that is. STATIC_DEPS=1 takes the archive: another machine may have another runtime.
CUDART := $(firstword $(wildcard $(patsubst %,$(CUDA_HOME)/%/libcudart$(if $(filter 1,$(STATIC_DEPS)),_static.a,.so),lib64 lib)))
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(if $(CUDART),$(wildcard client/examples/*.c),$(filter-out %_cuda.c,$(wildcard client/examples/*.c))))

$(BUILD)/batchctl: $(CTL) $(INLINE) $(BUILD)/client/finish/mix-spec.o $(BUILD)/client/finish/mix-draw.o $(OLD_GLIBC) $(BUILD)/libbatchd.a $(BUILD)/libdaemon.a
	$(LINK) $^ $(CTL_LIBS) $(LIBS)
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
# What CUDA is: changes only when it does, and then what depends on it is linked again.
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

##@ Examples

.PHONY: examples
examples: $(EXAMPLES) ## The client library's examples; train_cuda only where the CUDA runtime is
	$(if $(CUDART),,@echo "train_cuda is left out: there is no libcudart in $(CUDA_HOME) (CUDA_HOME names another place)")
$(BUILD)/client/examples/%_cuda: client/examples/%_cuda.c $(BUILD)/$(SO).$(VERSION)
	@mkdir -p $(@D)
	$(LINK) $(WARN) -Iclient -isystem $(CUDA_HOME)/include $< -L$(BUILD) -lbatchd $(CUDART) $(if $(filter %.a,$(CUDART)),-lrt -ldl -pthread) -Wl,-rpath,'$$ORIGIN/../..:$(dir $(CUDART))'
$(BUILD)/client/examples/%: client/examples/%.c $(BUILD)/$(SO).$(VERSION)
	@mkdir -p $(@D)
	$(LINK) $(WARN) -Iclient $< -L$(BUILD) -lbatchd -Wl,-rpath,'$$ORIGIN/../..'
