# The protocol, and how any object is made.

PROTO := $(call objects,$(wildcard proto/*.c)) $(BUILD)/proto/batchd.pb-c.o

$(BUILD)/proto/batchd.pb-c.c $(BUILD)/proto/batchd.pb-c.h &: proto/batchd.proto | $(BUILD)/.packages
	@mkdir -p $(@D)
	$(call say,GEN) protoc-c --proto_path=proto --c_out=$(BUILD)/proto $<
$(BUILD)/proto/batchd.pb-c.o: $(BUILD)/proto/batchd.pb-c.c
	$(COMPILE) -w
$(BUILD)/%.o: %.c | $(BUILD)/proto/batchd.pb-c.h
	@mkdir -p $(@D)
	$(COMPILE)
# Once per build folder: are the libraries there? A compiler's "No such file" would not say which package has it.
$(BUILD)/.packages:
	@tests/setup/packages --check
	@mkdir -p $(BUILD)/proto && touch $@
