/* random: synthetic arrays, for tests and to measure how fast a trainer is when its data costs nothing.
 *
 * The content of a sample is a function of seed and index alone. Eight xorshift generators in the compiler's vectors
 * make it side by side, so that it costs about as much as writing it. Floats are uniform in [0, 1), integers over their
 * whole range, bool 0 or 1. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/impl.h"

#define RANDOM_MAX_ROW_BYTES (1ull << 30)

enum { RANDOM_MAX_CLASSES = 1000000, BLOCK_BYTES = 64, CLASS_NAME_BYTES = 8 };
enum { DATA = 0, LABEL = 1 };

typedef uint64_t v8u64 __attribute__((vector_size(BLOCK_BYTES)));
typedef uint32_t v16u32 __attribute__((vector_size(BLOCK_BYTES)));
typedef uint16_t v32u16 __attribute__((vector_size(BLOCK_BYTES)));
typedef float v16f __attribute__((vector_size(BLOCK_BYTES)));
typedef double v8f __attribute__((vector_size(BLOCK_BYTES)));

struct random_set {
	struct dataset base;
	uint64_t seed;
	size_t item_bytes[DATASET_MAX_FIELDS]; /* of each field, as field_item_bytes */
	char *class_names;                     /* n_classes times CLASS_NAME_BYTES; NULL without classes */
	uint16_t halves[2048];                 /* k / 2048 as float16 */
};

/* splitmix64's finalizer: a good hash of a counter. */
static uint64_t data_random_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint64_t data_random_key_of(const struct random_set *s, unsigned field, uint64_t index)
{
	uint64_t key = data_random_mix(data_random_mix(s->seed) ^ index);

	return field > LABEL ? data_random_mix(key + field) : key;
}

/* Vectors are passed by address: by value the convention differs between instruction sets. */
static inline void data_random_step(v8u64 *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
}

/* Turns 64 bytes of bits into 64 bytes of elements. */
static inline void shape_block(const struct random_set *s, enum dtype dtype, const v8u64 *x,
			       unsigned char out[BLOCK_BYTES])
{
	v8u64 bits = *x;

	memcpy(out, &bits, BLOCK_BYTES);
	switch (dtype) {
	case DTYPE_FLOAT32: {
		/* Mantissa bits under the exponent of 1.0 are uniform in [1, 2). */
		v16u32 one = ((v16u32)bits >> 9) | 0x3f800000u;
		v16f value = (v16f)one - 1.0f;

		memcpy(out, &value, BLOCK_BYTES);
		break;
	}
	case DTYPE_FLOAT64: {
		v8u64 one = (bits >> 12) | 0x3ff0000000000000ull;
		v8f value = (v8f)one - 1.0;

		memcpy(out, &value, BLOCK_BYTES);
		break;
	}
	case DTYPE_FLOAT16: {
		v32u16 k = (v32u16)bits >> 5;

		for (unsigned i = 0; i < BLOCK_BYTES / 2; i++)
			memcpy(out + 2 * i, &s->halves[k[i]], 2);
		break;
	}
	case DTYPE_BOOL8: {
		v8u64 ones = bits & 0x0101010101010101ull;

		memcpy(out, &ones, BLOCK_BYTES);
		break;
	}
	default:
		break;
	}
}

static void data_random_make_row(const struct random_set *s, enum dtype dtype, uint64_t key, unsigned char *row,
				 size_t n_bytes)
{
	unsigned char tail[BLOCK_BYTES];
	size_t at = 0;
	v8u64 x;

	for (unsigned k = 0; k < 8; k++)
		x[k] = data_random_mix(key + k) | 1; /* never zero: a generator at zero would stay there */
	for (; n_bytes - at >= BLOCK_BYTES; at += BLOCK_BYTES) {
		data_random_step(&x);
		shape_block(s, dtype, &x, row + at);
	}
	if (at < n_bytes) {
		data_random_step(&x);
		shape_block(s, dtype, &x, tail);
		memcpy(row + at, tail, n_bytes - at);
	}
}

static int64_t data_random_label_of(const struct random_set *s, uint64_t index)
{
	uint32_t n = s->base.n_classes;

	return (int64_t)(n ? data_random_mix(data_random_key_of(s, LABEL, index)) % n : index);
}

static int random_gather(struct dataset *ds, const uint64_t *indices, size_t n, void *const rows[],
			 struct dataset_error *err)
{
	const struct random_set *s = (const struct random_set *)ds;
	int64_t *labels = rows[LABEL];

	(void)err;
	for (size_t i = 0; labels && i < n; i++)
		labels[i] = data_random_label_of(s, indices[i]);
	for (unsigned k = 0; k < ds->n_fields; k++)
		for (size_t i = 0; k != LABEL && rows[k] && i < n; i++)
			data_random_make_row(s, ds->fields[k].dtype, data_random_key_of(s, k, indices[i]),
					     (unsigned char *)rows[k] + i * s->item_bytes[k], s->item_bytes[k]);
	return 0;
}

static void random_name(const struct dataset *ds, uint64_t index, char *buf, size_t size)
{
	(void)ds;
	snprintf(buf, size, "random[%llu]", (unsigned long long)index);
}

static const char *random_class(const struct dataset *ds, uint32_t i)
{
	return ((const struct random_set *)ds)->class_names + (size_t)i * CLASS_NAME_BYTES;
}

static void random_destroy(struct dataset *ds)
{
	struct random_set *s = (struct random_set *)ds;

	free(s->class_names);
	free(s);
}

static const struct dataset_ops random_ops = {
	.destroy = random_destroy,
	.gather = random_gather,
	.name = random_name,
	.class_name = random_class,
};

/* ---- options ---- */

struct option {
	const char *name, *value;
	struct dataset_error *err;
};

static int bad_option(const struct option *o, const char *expected)
{
	return dataset_fail(o->err, DATASET_E_INVALID, -EINVAL, "random: %s=%.64s: expected %s", o->name, o->value,
			    expected);
}

/* Strictly digits, min..max. */
static bool data_random_parse_number(const char *text, size_t n, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t value = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned digit = (unsigned)(text[i] - '0');

		if (digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			return false;
	}
	*out = value;
	return n && value >= min && value <= max;
}

static int data_random_set_length(struct random_set *s, const struct option *o)
{
	return data_random_parse_number(o->value, strlen(o->value), 1, INT64_MAX, &s->base.n)
		       ? 0
		       : bad_option(o, "a number of samples, at least 1");
}

static int data_random_set_seed(struct random_set *s, const struct option *o)
{
	return data_random_parse_number(o->value, strlen(o->value), 0, UINT64_MAX, &s->seed)
		       ? 0
		       : bad_option(o, "a number of at most 64 bits");
}

static int set_classes(struct random_set *s, const struct option *o)
{
	uint64_t n;

	if (!data_random_parse_number(o->value, strlen(o->value), 1, RANDOM_MAX_CLASSES, &n))
		return bad_option(o, "a number of classes, 1 to 1000000");
	s->base.n_classes = (uint32_t)n;
	return 0;
}

/* "3x224x224". */
static bool parse_shape(const char *at, struct field *f)
{
	for (f->n_dims = 0; *at || f->n_dims == 0; f->n_dims++) {
		size_t n = strcspn(at, "x");
		uint64_t dim;

		if (f->n_dims == FIELD_MAX_DIMS || !data_random_parse_number(at, n, 1, UINT32_MAX, &dim) ||
		    (at[n] && !at[n + 1]))
			return false;
		f->shape[f->n_dims] = (uint32_t)dim;
		at += n + (at[n] == 'x');
	}
	return true;
}

static bool parse_dtype(const char *text, struct field *f)
{
	for (int t = DTYPE_UINT8; t <= DTYPE_BOOL8; t++) {
		if (!strcmp(text, dtype_name((enum dtype)t))) {
			f->dtype = (enum dtype)t;
			return true;
		}
	}
	return false;
}

static int set_shape(struct random_set *s, const struct option *o)
{
	return parse_shape(o->value, &s->base.fields[DATA]) ? 0 : bad_option(o, "up to 8 sizes like 3x224x224");
}

static int data_random_set_dtype(struct random_set *s, const struct option *o)
{
	return parse_dtype(o->value, &s->base.fields[DATA])
		       ? 0
		       : bad_option(o, "uint8, float16, float32, int32, int64, float64, int16 or bool");
}

/* "NAME:TYPE" or "NAME:TYPE:SHAPE". */
static int data_random_add_field(struct random_set *s, const struct option *o)
{
	char text[128], *type, *shape = NULL;
	struct field *f;

	snprintf(text, sizeof(text), "%s", o->value);
	type = strchr(text, ':');
	if (type) {
		*type++ = '\0';
		shape = strchr(type, ':');
	}
	if (shape)
		*shape++ = '\0';
	f = dataset_add_field(&s->base, text, DTYPE_UINT8, o->err);
	if (!f)
		return -EINVAL;
	if (type && parse_dtype(type, f) && (!shape || parse_shape(shape, f)))
		return 0;
	return bad_option(o, "NAME:TYPE[:SHAPE], numbers of one shape; texts, bytes and lists come from files");
}

static const struct {
	const char *name;
	int (*set)(struct random_set *s, const struct option *o);
	bool required, repeats;
} options[] = {
	{ "length", data_random_set_length, true, false }, { "shape", set_shape, true, false },
	{ "dtype", data_random_set_dtype, false, false },  { "classes", set_classes, false, false },
	{ "seed", data_random_set_seed, false, false },    { "field", data_random_add_field, false, true },
};
enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };

static int set_option(struct random_set *s, const struct SourcePair *pair, bool seen[N_OPTIONS],
		      struct dataset_error *err)
{
	struct option o = { .name = pair->name, .value = pair->value, .err = err };
	int k = 0;

	while (k < N_OPTIONS && strcmp(o.name, options[k].name))
		k++;
	if (k == N_OPTIONS)
		return dataset_fail(
			err, DATASET_E_INVALID, -EINVAL,
			"random: unknown option '%.64s': expected length, shape, dtype, classes, seed or field",
			o.name);
	if (seen[k] && !options[k].repeats)
		return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "random: %s: expected it once", o.name);
	seen[k] = true;
	return options[k].set(s, &o);
}

static int take_options(struct random_set *s, const struct Source *from, struct dataset_error *err)
{
	bool seen[N_OPTIONS] = { false };

	for (size_t i = 0; i < from->n_option; i++) {
		int r = set_option(s, from->option[i], seen, err);

		if (r < 0)
			return r;
	}
	for (int k = 0; k < N_OPTIONS; k++) {
		if (options[k].required && !seen[k])
			return dataset_fail(
				err, DATASET_E_INVALID, -EINVAL,
				"random: %s is missing: expected random:length=N,shape=3x224x224[,dtype=float32]"
				"[,classes=K][,seed=S][,field=NAME:TYPE[:SHAPE]]...",
				options[k].name);
	}
	return 0;
}

static int size_fields(struct random_set *s, struct dataset_error *err)
{
	for (unsigned k = 0; k < s->base.n_fields; k++) {
		struct field *f = &s->base.fields[k];

		if (field_item_bytes(f, &s->item_bytes[k]) || s->item_bytes[k] > RANDOM_MAX_ROW_BYTES)
			return dataset_fail(err, DATASET_E_LIMIT, -EFBIG,
					    "random: shape: a sample's %s is larger than 1 GiB", f->name);
	}
	return 0;
}

static int name_classes(struct random_set *s, struct meter *meter, struct dataset_error *err)
{
	int r;

	s->base.memory_bytes = sizeof(*s) + (uint64_t)s->base.n_classes * CLASS_NAME_BYTES;
	r = meter_take(meter, s->base.memory_bytes);
	if (r < 0)
		return dataset_fail_errno(err, -r, "random: classes");
	if (!s->base.n_classes)
		return 0;
	s->class_names = malloc((size_t)s->base.n_classes * CLASS_NAME_BYTES);
	if (!s->class_names)
		return dataset_fail_errno(err, ENOMEM, "random: classes");
	for (uint32_t i = 0; i < s->base.n_classes; i++)
		snprintf(s->class_names + (size_t)i * CLASS_NAME_BYTES, CLASS_NAME_BYTES, "%u", i % RANDOM_MAX_CLASSES);
	return 0;
}

/* k / 2048 is exact in float16: 11 bits of mantissa. */
static void make_halves(uint16_t halves[2048])
{
	for (unsigned k = 1; k < 2048; k++) {
		unsigned top = 31 - (unsigned)__builtin_clz(k);

		halves[k] = (uint16_t)((top + 4) << 10 | ((k << (10 - top)) & 0x3ff));
	}
}

static int random_init(struct random_set *s, const struct dataset_source *source, const char *rest,
		       struct dataset_error *err)
{
	int r = take_options(s, source->part, err);

	r = r < 0 ? r : name_classes(s, source->meter, err);
	make_halves(s->halves);
	r = r < 0 ? r : size_fields(s, err);
	if (r < 0)
		return r;
	s->base.label_is_index = !s->base.n_classes;
	s->base.id = s->base.content_id = XXH3_64bits_withSeed(rest, strlen(rest), 0x72616e646f6d);
	return 0;
}

int random_open(const struct dataset_source *source, const char *rest, struct dataset **out, struct dataset_error *err)
{
	struct random_set *s = calloc(1, sizeof(*s));
	int r = -ENOMEM;

	if (!s)
		return dataset_fail_errno(err, ENOMEM, "random");
	s->base.ops = &random_ops;
	atomic_init(&s->base.refs, 1);
	if (dataset_add_field(&s->base, "data", DTYPE_FLOAT32, err) &&
	    dataset_add_field(&s->base, "label", DTYPE_INT64, err))
		r = random_init(s, source, rest, err);
	if (r < 0) {
		dataset_destroy(&s->base);
		return r;
	}
	*out = &s->base;
	return 0;
}
