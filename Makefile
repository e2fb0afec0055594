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
objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
# All .c files of a folder and of those in it.
below = $(sort $(shell find $(1) -name '*.c'))

ifeq ($(STATIC_DEPS),1)
INLINE_ARCHIVES := $(call objects,client/inline/archive-stdio.c) # for archives that were made for programs only
OLD_GLIBC := $(call objects,client/python/wheel/old-glibc.c)
LDFLAGS += -Wl,--wrap=exp,--wrap=log,--wrap=pow,--wrap=getdents64
endif

include proto/build.mk daemon/build.mk client/build.mk tests/build.mk systemd/build.mk client/python/build.mk

##@ Build

.PHONY: all
all: $(BUILD)/batchd $(BUILD)/batchctl $(LIBRARY) $(EXAMPLES) ## The daemon, batchctl, the client library and its examples, in build/

##@ Other

.PHONY: clean distclean help
# What was installed from a package registry, and takes long to get again, stays.
clean: ## Removes what was built; keeps the Python environments in build/
	rm -rf build-asan build-tsan build-fuzz build-wheel build-wheel-* build-carry .gpu
	for build in build $(BUILD); do if [ -d $$build ]; then \
		find $$build -mindepth 1 -maxdepth 1 ! -name venv ! -name '*-venv' -exec rm -rf {} +; fi; done
distclean: ## Removes the build folders and all that is in them
	rm -rf build build-asan build-tsan build-fuzz build-wheel build-wheel-* build-carry .gpu build-sysroot dist $(BUILD)
help: ## This text
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z_.-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile $(filter %.mk,$(MAKEFILE_LIST))

-include $(shell find $(BUILD) -type f -name '*.d' -not -path '$(BUILD)/*venv/*' 2>/dev/null)
