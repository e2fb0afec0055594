# batchd, and libdaemon.a, which is everything of it but main.c.

# With (1) or without (0) GPUs: two sets of files behind one header.
daemon = $(call objects,$(filter-out daemon/main.c $(if $(filter 0,$(1)),daemon/gpu/gpus.c $(addprefix daemon/gpu/,copier.c errors.c mps.c thread.c work.c),daemon/gpu/gpus-none.c) \
	daemon/watch/http-library$(if $(filter 1,$(STATIC_DEPS)),,-linked).c, \
	$(call below,daemon)))
DAEMON := $(call daemon,$(CUDA))

# The daemon's version is the library's; it includes no header of the client for that.
$(BUILD)/daemon/watch/metrics.o: daemon/watch/metrics-page.html
$(BUILD)/daemon/watch/metrics.o: DEFS += -DMETRICS_PAGE='"daemon/watch/metrics-page.html"'
VERSIONED := $(BUILD)/daemon/daemon.o $(BUILD)/daemon/config/options.o
$(VERSIONED): DEFS += -DDAEMON_VERSION='"$(VERSION)"'
$(VERSIONED): client/batchd.h
# Everything of the daemon but main.c is one static library, which the daemon, batchctl and the tests link.
$(BUILD)/libdaemon.a: $(DAEMON) $(PROTO) $(BUILD)/.cuda
	$(ARCHIVE) $(DAEMON) $(PROTO)
$(BUILD)/batchd: $(BUILD)/daemon/main.o $(OLD_GLIBC) $(BUILD)/libdaemon.a
	$(LINK) $^ $(LIBS)
# What CUDA=0 makes, for a test: the same objects but one.
$(BUILD)/tests/batchd-nocuda: $(BUILD)/daemon/main.o $(call daemon,0) $(PROTO)
	@mkdir -p $(@D)
	$(LINK) $^ $(LIBS)
