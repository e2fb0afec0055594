# The wheel, the source distribution and Debian packages.

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
