/* The ops by name. */
#include "image/transform/op-types.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct op_type *const families[] = { geometry_ops,    color_ops,  container_ops, tensor_ops,
						  erase_ops,       policy_ops, augmix_ops,    timm_ops,
						  levels_ops,      blur_ops,   warp_ops,      scale_ops,
						  photometric_ops, place_ops,  noise_ops,     elastic_ops,
						  convert_ops,     NULL };

const struct op_type *op_type_find(const char *name)
{
	for (const struct op_type *const *family = families; *family; family++)
		for (const struct op_type *t = *family; t->name; t++)
			if (strcmp(t->name, name) == 0)
				return t;
	return NULL;
}

/* Edit distance of two names, insertions and deletions included; both at most 63 letters. */
static unsigned op_types_distance(const char *a, const char *b)
{
	unsigned row[64], n = (unsigned)strlen(b);

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; *a; a++, i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned change = diagonal + (tolower((unsigned char)*a) != tolower((unsigned char)b[j - 1]));
			unsigned skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = change < skip ? change : skip;
		}
	}
	return row[n];
}

/* The op whose name is nearest. */
static const struct op_type *nearest(const char *name, unsigned *least)
{
	const struct op_type *best = NULL;

	*least = 64;
	for (const struct op_type *const *family = families; *family && strlen(name) < 64; family++) {
		for (const struct op_type *t = *family; t->name; t++) {
			unsigned d = op_types_distance(name, t->name);

			if (d < *least) {
				*least = d;
				best = t;
			}
		}
	}
	return best;
}

bool op_is_timms_text(const char *name)
{
	static const char *const kinds[] = { "rand", "augmix", "v0", "v0r", "original", "originalr", "3a" };
	size_t n = strcspn(name, "-");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strlen(kinds[i]) == n && strncmp(kinds[i], name, n) == 0)
			return true;
	return false;
}

int op_type_unknown(const char *position, const char *name, struct pipeline_error *err)
{
	unsigned d;
	const struct op_type *best = nearest(name, &d);

	if (op_is_timms_text(name))
		snprintf(err->text, sizeof(err->text),
			 "op %s '%.60s' is a text of timm's, which batchd's Python package reads: write the ops that "
			 "python3 -m batchd.ops '[..., \"%.60s\", ...]' prints for the whole list",
			 position, name, name);
	else if (best && d <= strlen(best->name) / 5 + 1) /* a typing error; a larger distance means another op */
		snprintf(err->text, sizeof(err->text), "op %s '%.60s' is not known; did you mean '%s'?", position, name,
			 best->name);
	else
		snprintf(
			err->text, sizeof(err->text),
			"op %s '%.60s' is not known to batchd; its manual lists the ops that are. Do this one in the training "
			"loop, or share your own DataLoader that does it (batchd.serve)",
			position, name);
	return -EINVAL;
}
