/* Lists of ops, through the functions of their types. */
#include "image/transform/op-list.h"

#include <stdlib.h>
#include <string.h>

/* Whether an op may write a colour of its own, which means something else on other numbers. */
static bool fills(const struct op_type *t)
{
	for (const char *const *arg = t->args; arg && *arg; arg++) {
		if (!strcmp(*arg, "fill"))
			return true;
	}
	return !strcmp(t->name, "CenterCrop");
}

int op_list_follow(const struct op *ops, unsigned n, struct form *f, struct pipeline_error *err)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < n; i++) {
		if (f->to_tensor && !(ops[i].type->flags & OP_NUMBERS))
			return op_wrong(&ops[i], err, "works on pixels: move it before ToTensor%s",
					fills(ops[i].type)
						? ", and give its fill in pixels: after Normalize 0 is the mean"
						: "");
		if (f->pixel != PIXEL_RGB && !(ops[i].type->flags & OP_ANY_PIXEL))
			return op_wrong(
				&ops[i], err,
				"does not work on images of mode %s: crops, Resize, RandomResizedCrop, Pad, flips, "
				"ToDtype, Normalize and RandomErasing do",
				pixel_mode(f->pixel));
		if (ops[i].type->follow)
			rc = ops[i].type->follow(&ops[i], f, err);
	}
	return rc;
}

int form_either(struct form *f, const struct form *other, const struct op *op, struct pipeline_error *err)
{
	if (f->n_channels != other->n_channels)
		return op_wrong(op, err,
				"gives images of one or of three channels, depending on what it draws; all rows of a "
				"batch must have the same: use Grayscale with num_output_channels 3");
	if (f->width != other->width || f->height != other->height) {
		f->width = f->height = 0;
		f->blame = op;
	}
	return 0;
}

json_t *op_list_json(const struct op *ops, unsigned n)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++) {
		const struct op_type *t = ops[i].type;

		json_array_append_new(list, json_pack("[so]", t->name, t->write ? t->write(&ops[i]) : json_object()));
	}
	if (json_array_size(list) == n)
		return list;
	json_decref(list);
	return NULL;
}

void op_list_destroy(struct op *ops, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		op_list_destroy(ops[i].children, ops[i].n_children);
		free(ops[i].args);
	}
	free(ops);
}
