/* The parser's description of each kind of op. */
#ifndef BATCHD_OP_TYPES_H
#define BATCHD_OP_TYPES_H

#include "pipeline/arguments.h"
#include "pipeline/spec.h"

enum { N_OP_TYPES = OP_NORMALIZE + 1 };

struct op_type {
	const char *name;
	const char *const *args;                         /* their names, NULL-terminated */
	int (*read)(struct arguments *a, struct op *op); /* fills op, whose other fields are 0; 0 or -EINVAL */
	json_t *(*write)(const struct op *op);           /* all arguments by name, a new object; NULL when memory
	                                                    * is short */
	bool random;
};

extern const struct op_type op_types[N_OP_TYPES]; /* by enum op_kind */

/* Reports that op `position` (from 1) is unknown, and suggests a name. Returns -EINVAL. */
int op_type_unknown(unsigned position, const char *name, struct pipeline_error *err);

#endif
