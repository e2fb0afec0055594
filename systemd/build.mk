# What is installed, and where.

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
		644:client/completion/batchctl.bash:$(datarootdir)/bash-completion/completions/$(program) \
		644:client/completion/batchctl.fish:$(fishdir)/$(program).fish) \
	644:client/completion/_batchctl:$(datarootdir)/zsh/site-functions/_batchctl \
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
# Files that name places; made again each time, as the places may differ.
.PHONY: places
$(BUILD)/batchd.pc: client/batchd.pc.in places
	sed 's|@prefix@|$(prefix)|; s|@exec_prefix@|$(exec_prefix)|; s|@libdir@|$(libdir)|; s|@includedir@|$(includedir)|; s|@bindir@|$(bindir)|; s|@VERSION@|$(VERSION)|' $< >$@
$(BUILD)/systemd/%: systemd/% places
	@mkdir -p $(@D)
	sed 's|/usr/bin/batch|$(bindir)/batch|' $< >$@
$(BUILD)/doc/%.md: %.md Makefile
	@mkdir -p $(@D)
	sed 's,\[\([^]]*\)\]([^)]*/man/[^)]*),\1,g; s,\[\([^]]*\)\](\(\(tests\|daemon\|proto\|\.github\)/[^)]*\)),\1 (`\2` in the source),g' $< >$@
