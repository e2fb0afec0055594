/* Runs a pipeline on files and writes the finished rows to stdout, one after the other:
 *
 *     render [--resume] TRANSFORM DTYPE LAYOUT SEED EPOCH FIRST_INDEX FILE...
 *     render --choices TRANSFORM SEED EPOCH FIRST_INDEX COUNT WIDTH HEIGHT
 *
 * --resume works as with the decoded cache: prefix, a copy of it, the rest. FILE may be WIDTHxHEIGHT:path, raw RGB.
 * --choices prints the choices of the first random op for COUNT samples of an image of that size, one line each,
 * without any pixels. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/transform/ops.h"
#include "image/transform/views.h"

struct bytes {
	uint8_t *data;
	size_t n;
};

static void die(const char *what, const char *why)
{
	fprintf(stderr, "render: %s: %s\n", what, why);
	exit(1);
}

static struct bytes read_file(const char *path)
{
	struct bytes b = { 0 };
	FILE *f = fopen(path, "rb");

	if (!f || fseek(f, 0, SEEK_END) < 0)
		die(path, "cannot be read");
	b.n = (size_t)ftell(f);
	rewind(f);
	b.data = malloc(b.n + 1);
	if (!b.data || fread(b.data, 1, b.n, f) != b.n)
		die(path, "cannot be read");
	fclose(f);
	return b;
}

static struct image image_dup(const struct image *i)
{
	struct image copy = { .stride_bytes = (size_t)i->width * 3, .width = i->width, .height = i->height };

	copy.rgb = malloc(copy.stride_bytes * copy.height);
	if (!copy.rgb)
		die("prefix", "no memory");
	for (uint32_t y = 0; y < i->height; y++)
		memcpy(copy.rgb + y * copy.stride_bytes, i->rgb + y * i->stride_bytes, copy.stride_bytes);
	return copy;
}

static int resume(const struct pipeline *p, struct pipeline_worker *w, const struct image *prefix,
		  struct sample_key key, void *const rows[], struct image_error *err)
{
	struct image copy = image_dup(prefix);
	int rc = views_resume(p, w, &copy, key, rows, err);

	free(copy.rgb);
	return rc;
}

static int render_encoded(const struct pipeline *p, struct pipeline_worker *w, struct decoder *d, bool by_prefix,
			  const char *path, struct sample_key key, void *const rows[], struct image_error *err)
{
	struct bytes file = read_file(path);
	struct image_info info;
	struct image prefix;
	int rc = pipeline_open(p, d, file.data, file.n, false, &info, err);

	if (rc == 0 && !by_prefix)
		rc = views_run(p, w, d, &info, key, rows, err);
	if (rc == 0 && by_prefix)
		rc = pipeline_prefix(p, w, d, &info, &prefix, err);
	if (rc == 0 && by_prefix)
		rc = resume(p, w, &prefix, key, rows, err);
	decoder_close(d);
	free(file.data);
	return rc;
}

/* A raw image is a prefix: deterministic ops at the start of the pipeline are not run. */
static int render_raw(const struct pipeline *p, struct pipeline_worker *w, uint32_t width, uint32_t height,
		      const char *path, struct sample_key key, void *const rows[], struct image_error *err)
{
	struct bytes file = read_file(path);
	struct image raw = { file.data, (size_t)width * 3, width, height };
	int rc;

	if (file.n != (size_t)width * height * 3)
		die(path, "has another size");
	rc = views_resume(p, w, &raw, key, rows, err);
	free(file.data);
	return rc;
}

static struct pipeline *parse(const char *text, const char *dtype, const char *layout)
{
	enum dtype type = strcmp(dtype, "float32") == 0   ? DTYPE_FLOAT32
			  : strcmp(dtype, "float16") == 0 ? DTYPE_FLOAT16
							  : DTYPE_UINT8;
	struct pipeline_error err;
	struct pipeline *p;

	const struct image_form unknown = { .n_channels = 3 };

	if (views_parse(text, &unknown, type, strcmp(layout, "NHWC") == 0 ? LAYOUT_NHWC : LAYOUT_NCHW, &p, &err) != 0)
		die("pipeline", err.text);
	return p;
}

static void render(bool by_prefix, char **argv)
{
	struct pipeline *p = parse(argv[0], argv[1], argv[2]);
	struct sample_key key = { strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
				  strtoull(argv[5], NULL, 10) };
	struct pipeline_worker *w = pipeline_worker_create();
	struct decoder *d = decoder_create(&decode_limits_default);
	void *rows[VIEWS_MAX];
	struct image_error err;

	if (!w || !d)
		die("render", "no memory");
	for (unsigned k = 0; k < views_n(p); k++) {
		rows[k] = aligned_alloc(64, (pipeline_row_bytes(views_at(p, k)) + 63) / 64 * 64); /* as in a slot */
		if (!rows[k])
			die("render", "no memory");
	}
	for (argv += 6; *argv; argv++, key.index++) {
		uint32_t width, height;
		int at, rc;

		if (sscanf(*argv, "%" SCNu32 "x%" SCNu32 ":%n", &width, &height, &at) == 2)
			rc = render_raw(p, w, width, height, *argv + at, key, rows, &err);
		else
			rc = render_encoded(p, w, d, by_prefix, *argv, key, rows, &err);
		if (rc != 0)
			die(*argv, rc > 0 ? err.text : "no memory");
		for (unsigned k = 0; k < views_n(p); k++)
			fwrite(rows[k], 1, pipeline_row_bytes(views_at(p, k)), stdout);
	}
	for (unsigned k = 0; k < views_n(p); k++)
		free(rows[k]);
	decoder_destroy(d);
	pipeline_worker_destroy(w);
	pipeline_destroy(p);
}

static void print_choice(const struct op_choice *c)
{
	for (unsigned i = 0; i < c->n_drawn; i++)
		printf("%.17g ", c->drawn[i]);
	printf("\n");
}

static void print_choices(char **argv)
{
	struct sample_key key = { strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10),
				  strtoull(argv[3], NULL, 10) };
	uint32_t width = (uint32_t)strtoul(argv[5], NULL, 10), height = (uint32_t)strtoul(argv[6], NULL, 10);
	struct pipeline_error parse_err;
	struct spec s;
	unsigned i = 0;

	if (spec_parse(&s, argv[0], &(struct image_form){ .n_channels = 3 }, &parse_err) != 0)
		die("pipeline", parse_err.text);
	while (i < s.n_ops && !(s.ops[i].type->flags & OP_RANDOM))
		i++;
	if (i == s.n_ops)
		die("pipeline", "nothing in it is random");
	for (unsigned long n = strtoul(argv[4], NULL, 10); n > 0; n--, key.index++) {
		struct op_choice choice;
		struct image_error err;
		struct op_run run = { .key = key };

		if (op_choose(&s.ops[i], &run, width, height, &choice, &err) != 0)
			die("choice", err.text);
		print_choice(&choice);
	}
	spec_finish(&s);
}

int main(int argc, char **argv)
{
	bool by_prefix = argc > 1 && strcmp(argv[1], "--resume") == 0;

	if (argc == 9 && strcmp(argv[1], "--choices") == 0) {
		print_choices(argv + 2);
	} else if (argc > 7 + by_prefix) {
		render(by_prefix, argv + 1 + by_prefix);
	} else {
		fprintf(stderr, "usage: render [--resume] TRANSFORM DTYPE LAYOUT SEED EPOCH FIRST_INDEX FILE...\n"
				"       render --choices TRANSFORM SEED EPOCH FIRST_INDEX COUNT WIDTH HEIGHT\n");
		return 2;
	}
	return 0;
}
