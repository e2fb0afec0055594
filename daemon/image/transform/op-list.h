/* A list of ops: its text, the sizes it makes, its end. */
#ifndef BATCHD_OP_LIST_H
#define BATCHD_OP_LIST_H

#include "image/transform/op-types.h"

/* Changes f as the ops do, one after the other. 0, or -EINVAL with err->text. */
int op_list_follow(const struct op *ops, unsigned n, struct form *f, struct pipeline_error *err);
/* Makes f what is known when either f or other is the case, because op draws which. 0 or -EINVAL. */
int form_either(struct form *f, const struct form *other, const struct op *op, struct pipeline_error *err);
/* The canonical form: [[name, {arguments}], ...]. NULL when memory is short. */
json_t *op_list_json(const struct op *ops, unsigned n);
void op_list_destroy(struct op *ops, unsigned n);

#endif
