# The protocol, and how any object is made.

MESSAGES := $(addprefix $(BUILD)/proto/,source.pb-c batchd.pb-c)
PROTO := $(call objects,$(wildcard proto/*.c)) $(MESSAGES:=.o)

$(BUILD)/proto/%.pb-c.c $(BUILD)/proto/%.pb-c.h &: proto/%.proto | $(BUILD)/.packages
	@mkdir -p $(@D)
	$(call say,GEN) protoc-c --proto_path=proto --c_out=$(BUILD)/proto $<
$(MESSAGES:=.o): %.o: %.c | $(MESSAGES:=.h)
	$(COMPILE) -w
$(BUILD)/%.o: %.c | $(MESSAGES:=.h)
	@mkdir -p $(@D)
	$(COMPILE)
# Once per build folder: are the libraries there? A compiler's "No such file" would not say which package has it.
$(BUILD)/.packages:
	@tests/setup/packages --check
	@mkdir -p $(BUILD)/proto && touch $@
