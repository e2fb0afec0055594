# batchd: `make help` lists the targets.
.DEFAULT_GOAL := all
BUILD ?= build
PREFIX ?= /usr/local
CC ?= cc
CFLAGS ?= -O3 -g
WARN = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wno-sign-conversion
ifeq ($(WERROR),1)
WARN += -Werror
endif
ifdef SANITIZE
SAN := -fsanitize=$(SANITIZE) -fno-omit-frame-pointer $(if $(findstring undefined,$(SANITIZE)),-fno-sanitize-recover=undefined)
endif

PKGS := libuv libprotobuf-c libjpeg libpng libwebp libcyaml yaml-0.1 jansson libxxhash
HAVE_SYSTEMD := $(shell pkg-config --exists libsystemd && echo 1)
ifeq ($(HAVE_SYSTEMD),1)
PKGS += libsystemd
DEFS += -DHAVE_SYSTEMD=1
endif
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -pthread $(WARN) $(SAN) $(DEFS) $(CFLAGS) \
	-Idaemon -Iclient -Iproto -I$(BUILD)/proto $(shell pkg-config --cflags $(PKGS))
LIBS = $(shell pkg-config --libs $(PKGS)) -lm -pthread

# Everything of the daemon but main.c is one static library that the daemon, the tools and the tests link.
CORE_SRC := $(filter-out daemon/main.c,$(wildcard daemon/*.c daemon/*/*.c)) $(wildcard proto/*.c)
CORE_OBJ := $(CORE_SRC:%.c=$(BUILD)/%.o) $(BUILD)/proto/batchd.pb-c.o
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))

.PHONY: all clean check-c
all: $(BUILD)/batchd

$(BUILD)/proto/batchd.pb-c.c $(BUILD)/proto/batchd.pb-c.h &: proto/batchd.proto
	@mkdir -p $(@D)
	protoc-c --proto_path=proto --c_out=$(BUILD)/proto $<
$(BUILD)/proto/batchd.pb-c.o: $(BUILD)/proto/batchd.pb-c.c
	$(CC) $(ALL_CFLAGS) -w -MMD -c -o $@ $<
$(BUILD)/%.o: %.c | $(BUILD)/proto/batchd.pb-c.h
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -c -o $@ $<
$(BUILD)/libcore.a: $(CORE_OBJ)
	rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/batchd: $(BUILD)/daemon/main.o $(BUILD)/libcore.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(BUILD)/libcore.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(shell pkg-config --libs check) $(LIBS)
$(BUILD)/tests/tools/%: $(BUILD)/tests/tools/%.o $(BUILD)/libcore.a
	$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tests/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(BUILD)/libcore.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)
.PRECIOUS: $(BUILD)/%.o
check-c: $(TESTS)
	@for t in $(TESTS); do $$t || exit 1; done
clean:
	rm -rf $(BUILD)
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
