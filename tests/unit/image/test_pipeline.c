/* Pipelines: what is accepted, what is refused with which message, and that a row depends on its key and nothing else.
 * (tests/system/transforms/test_pixels.py compares pixels with Pillow, test_random_ops.py distributions with torch.) */
#include "image/transform/pipeline.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h> /* needs stdio.h before it */

#include "image/transform/random.h"
#include "support/suite.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
#define CAN_COUNT 0 /* sanitizers have an allocator of their own */
static unsigned long n_allocations;
#else
#define CAN_COUNT 1
/* glibc's allocator under its internal names, with a counter in front of it. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t align, size_t n);
static _Atomic unsigned long n_allocations;

void *malloc(size_t n)
{
	n_allocations++;
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	n_allocations++;
	return __libc_calloc(n, size);
}

void *realloc(void *old, size_t n)
{
	n_allocations++;
	return __libc_realloc(old, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	n_allocations++;
	return __libc_memalign(align, n);
}
#endif

static struct pipeline *parse_as(const char *text, enum dtype dtype, enum layout layout)
{
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;

	ck_assert_msg(pipeline_parse(text, dtype, layout, &p, &err) == 0, "%s: %s", text, err.text);
	return p;
}

static struct pipeline *parse(const char *text)
{
	return parse_as(text, DTYPE_UINT8, LAYOUT_NCHW);
}

/* words: what the message must contain, separated by '|'. */
static void expect_refusal(const char *text, enum dtype dtype, const char *words)
{
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;
	char copy[256], *rest = copy, *word;

	ck_assert_msg(pipeline_parse(text, dtype, LAYOUT_NCHW, &p, &err) == -EINVAL, "'%.100s' was not refused", text);
	ck_assert_ptr_null(strchr(err.text, '\n'));
	snprintf(copy, sizeof(copy), "%s", words);
	while ((word = strsep(&rest, "|")))
		ck_assert_msg(strstr(err.text, word) != NULL, "'%s' does not say '%s'", err.text, word);
}

/* A JPEG with a bit of everything in it. The caller frees it. */
static uint8_t *jpeg_new(uint32_t width, uint32_t height, unsigned long *n_bytes)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;
	uint8_t *out = NULL, *row = malloc((size_t)width * 3);

	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &out, n_bytes);
	c.image_width = width;
	c.image_height = height;
	c.input_components = 3;
	c.in_color_space = JCS_RGB;
	jpeg_set_defaults(&c);
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < height) {
		for (uint32_t i = 0; i < width * 3; i++)
			row[i] = (uint8_t)(i * 5 / 7 + c.next_scanline * (i % 3 + 1) + (i * c.next_scanline) % 11);
		jpeg_write_scanlines(&c, &row, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	free(row);
	return out;
}

/* Resources of one thread. */
struct bench {
	struct pipeline_worker *worker;
	struct decoder *decoder;
};

static struct bench bench_new(void)
{
	struct bench b = { pipeline_worker_create(), decoder_create(&decode_limits_default) };

	ck_assert_ptr_nonnull(b.worker);
	ck_assert_ptr_nonnull(b.decoder);
	return b;
}

static void bench_free(struct bench b)
{
	decoder_destroy(b.decoder);
	pipeline_worker_destroy(b.worker);
}

static uint8_t *run(struct bench b, const struct pipeline *p, const uint8_t *file, size_t n, struct sample_key key)
{
	uint8_t *row = malloc(pipeline_row_bytes(p));
	struct image_info info;
	struct image_error err = { "" };

	ck_assert_msg(decoder_open(b.decoder, file, n, false, &info, &err) == 0, "%s", err.text);
	ck_assert_msg(pipeline_run(p, b.worker, b.decoder, &info, key, row, &err) == 0, "%s", err.text);
	decoder_close(b.decoder);
	return row;
}

/* As in the epoch that fills the decoded cache: continues with the prefix's result in place. */
static uint8_t *run_both_halves(struct bench b, const struct pipeline *p, const uint8_t *file, size_t n,
				struct sample_key key)
{
	uint8_t *row = malloc(pipeline_row_bytes(p));
	struct image_info info;
	struct image_error err = { "" };
	struct image prefix;

	ck_assert_int_eq(decoder_open(b.decoder, file, n, false, &info, &err), 0);
	ck_assert_msg(pipeline_prefix(p, b.worker, b.decoder, &info, &prefix, &err) == 0, "%s", err.text);
	ck_assert_msg(pipeline_resume(p, b.worker, &prefix, key, row, &err) == 0, "%s", err.text);
	decoder_close(b.decoder);
	return row;
}

static uint8_t *run_by_prefix(struct bench b, const struct pipeline *p, const uint8_t *file, size_t n,
			      struct sample_key key)
{
	uint8_t *row = malloc(pipeline_row_bytes(p));
	struct image_info info;
	struct image_error err = { "" };
	struct image prefix, copy;

	ck_assert_int_eq(decoder_open(b.decoder, file, n, false, &info, &err), 0);
	ck_assert_msg(pipeline_prefix(p, b.worker, b.decoder, &info, &prefix, &err) == 0, "%s", err.text);
	copy = prefix;
	copy.stride_bytes = (size_t)prefix.width * 3;
	copy.rgb = malloc(copy.stride_bytes * copy.height); /* exactly, for sanitizers */
	for (uint32_t y = 0; y < copy.height; y++)
		memcpy(copy.rgb + y * copy.stride_bytes, prefix.rgb + y * prefix.stride_bytes, copy.stride_bytes);
	decoder_close(b.decoder);
	ck_assert_msg(pipeline_resume(p, b.worker, &copy, key, row, &err) == 0, "%s", err.text);
	free(copy.rgb);
	return row;
}

static const char everything[] =
	"[[\"RandomCrop\",[150,170],[9,5],true,[1,2,3],\"reflect\"],[\"RandomResizedCrop\",64],"
	"\"RandomHorizontalFlip\",[\"RandomVerticalFlip\",0.5],[\"ColorJitter\",0.4,0.4,0.4,0.1],[\"RandomGrayscale\",0.3],"
	"[\"Pad\",3],[\"CenterCrop\",66],\"ToTensor\",[\"Normalize\",[0.5],[0.25]]]";

/* Every container and policy: what they draw and mix. */
static const char policies[] =
	"[[\"Resize\",[80,90]],[\"RandomApply\",[[\"ColorJitter\",0.4],\"RandomHorizontalFlip\"],0.8],"
	"[\"RandomChoice\",[\"RandAugment\",\"TrivialAugmentWide\",[\"AutoAugment\",\"svhn\"],\"AugMix\"]],"
	"[\"RandomOrder\",[\"RandomVerticalFlip\",[\"RandomGrayscale\",0.2],[\"RandAugment\",{\"interpolation\":"
	"\"bicubic\"}]]],[\"TimmAugMix\",[[\"Rotate\",1,9],[\"SharpnessIncreasing\",1,9],[\"GaussianBlur\",1,5]]],"
	"[\"TimmRandAugment\",[[\"ShearX\",0.5,9],[\"SolarizeAdd\",0.5,9]],{\"magnitude_std\":0.5}],\"ToTensor\","
	"[\"Normalize\",0.1,0.3],[\"RandomErasing\",{\"value\":\"random\"}]]";

START_TEST(test_philox_gives_the_published_numbers)
{
	/* Random123's known answer: counter 0 under key 0; and draws follow blocks in order. */
	struct random r;

	random_init(&r, (struct sample_key){ 0, 0, 0 }, 0);
	ck_assert_uint_eq(random_bits(&r), 0x6627e8d5);
	ck_assert_uint_eq(random_bits(&r), 0xe169c58d);
	ck_assert_uint_eq(random_bits(&r), 0xbc57ac4c);
	ck_assert_uint_eq(random_bits(&r), 0x9b00dbd8);
}
END_TEST

START_TEST(test_a_row_s_seed_is_philox_of_its_position)
{
	/* Random123's known answers again, in the place of the counter; seed and position count to their last bit. */
	uint64_t zero = random_seed_at(0, 0);

	ck_assert_uint_eq(zero, 0xe169c58d6627e8d5);
	for (int bit = 0; bit < 64; bit++) {
		ck_assert_uint_ne(random_seed_at(0, UINT64_C(1) << bit), zero);
		ck_assert_uint_ne(random_seed_at(UINT64_C(1) << bit, 0), zero);
	}
}
END_TEST

START_TEST(test_every_part_of_the_key_matters)
{
	/* Seed, epoch (beyond 32 bits too), index and op: each gives other numbers. */
	struct sample_key keys[] = { { 0, 0, 0 },          { 1, 0, 0 }, { 1ull << 32, 0, 0 }, { 0, 1, 0 },
				     { 0, 1ull << 32, 0 }, { 0, 0, 1 }, { 0, 0, 1ull << 32 } };
	uint32_t first[8];
	struct random r;

	for (int i = 0; i < 8; i++) {
		random_init(&r, keys[i % 7], i == 7);
		first[i] = random_bits(&r);
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(first[i], first[j]);
	}
}
END_TEST

START_TEST(test_ranges_are_kept)
{
	/* Uniform floats are in [a, b), also where b - a is tiny; whole numbers are below n; certain and impossible
	 * chances are certain and impossible. */
	struct random r;

	random_init(&r, (struct sample_key){ 1, 2, 3 }, 4);
	for (int i = 0; i < 10000; i++) {
		float wide = random_uniform(&r, -2.0f, 3.0f), narrow = random_uniform(&r, 1.0f, 1.0000001f);

		ck_assert(wide >= -2.0f && wide < 3.0f);
		ck_assert(narrow >= 1.0f && narrow < 1.0000001f);
		ck_assert(random_uniform(&r, 0.5f, 0.5f) == 0.5f);
		ck_assert_uint_lt(random_below(&r, 7), 7);
		ck_assert_uint_eq(random_below(&r, 1), 0);
		ck_assert(random_below(&r, 0xc0000001) <= 0xc0000000);
		ck_assert(random_chance(&r, 1.0) && !random_chance(&r, 0.0));
	}
}
END_TEST

START_TEST(test_named_pipelines_are_what_they_stand_for)
{
	/* The names, their spelt-out forms and positional or named arguments are one text; defaults are written out. */
	struct pipeline *
		named = parse("train224"),
	       *spelt = parse(
		       "[[\"RandomResizedCrop\",{\"size\":[224,224],\"scale\":[0.08,1]}],"
		       "[\"RandomHorizontalFlip\",0.5],[\"ToTensor\"],[\"Normalize\",{\"std\":[0.229,0.224,0.225],\"mean\":[0.485,0.456,0.406]}]]");
	struct pipeline *val = parse("val224");
	uint32_t shape[3];

	ck_assert_str_eq(pipeline_text(named), pipeline_text(spelt));
	ck_assert_ptr_nonnull(strstr(pipeline_text(named), "\"interpolation\":\"bilinear\""));
	ck_assert_str_eq(pipeline_prefix_text(named), "[]");
	ck_assert_ptr_nonnull(strstr(pipeline_prefix_text(val), "CenterCrop"));
	ck_assert_ptr_null(strstr(pipeline_prefix_text(val), "ToTensor"));
	pipeline_shape(val, shape);
	ck_assert(shape[0] == 3 && shape[1] == 224 && shape[2] == 224);
	ck_assert_uint_eq(pipeline_row_bytes(val), 3 * 224 * 224);
	pipeline_destroy(named);
	pipeline_destroy(spelt);
	pipeline_destroy(val);
}
END_TEST

START_TEST(test_canonical_text_is_a_fixed_point)
{
	/* The canonical text is itself a pipeline, with the same canonical text. */
	static const char *const texts[] = {
		"train224",
		"val224",
		everything,
		policies,
		"[[\"Resize\",[9,7],\"bicubic\"],[\"Grayscale\",1],[\"Pad\",1,9],[\"RandomCrop\",7],\"ToTensor\",[\"Normalize\",0.1,0.3]]",
		"[[\"Resize\",{\"size\":40,\"max_size\":50,\"interpolation\":\"nearest\",\"pillow\":12}],[\"CenterCrop\",[3,4]],[\"ColorJitter\",{\"hue\":[-0.1,0.2]}]]",
		"[[\"Resize\",[9,7],\"random\"],[\"Pad\",[-1,2]],\"ToTensor\"]"
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct pipeline *p =
			parse_as(texts[i], texts[i] == policies ? DTYPE_FLOAT32 : DTYPE_UINT8, LAYOUT_NCHW);
		struct pipeline *again =
			parse_as(pipeline_text(p), texts[i] == policies ? DTYPE_FLOAT32 : DTYPE_UINT8, LAYOUT_NCHW);

		ck_assert_str_eq(pipeline_text(p), pipeline_text(again));
		ck_assert_str_eq(pipeline_prefix_text(p), pipeline_prefix_text(again));
		pipeline_destroy(again);
		pipeline_destroy(p);
	}
}
END_TEST

START_TEST(test_shapes_follow_layout_dtype_and_channels)
{
	/* Shape in memory order, bytes by dtype; one channel after Grayscale(1). */
	struct pipeline *p =
		parse_as("[[\"Resize\",[10,20]],[\"Pad\",[1,2]],\"ToTensor\"]", DTYPE_FLOAT16, LAYOUT_NHWC);
	struct pipeline *gray = parse_as("[[\"CenterCrop\",8],\"Grayscale\",\"ToTensor\"]", DTYPE_FLOAT32, LAYOUT_NCHW);
	uint32_t shape[3];

	pipeline_shape(p, shape);
	ck_assert(shape[0] == 14 && shape[1] == 22 && shape[2] == 3);
	ck_assert_uint_eq(pipeline_row_bytes(p), 14 * 22 * 3 * 2);
	pipeline_shape(gray, shape);
	ck_assert(shape[0] == 1 && shape[1] == 8 && shape[2] == 8);
	ck_assert_uint_eq(pipeline_row_bytes(gray), 8 * 8 * 4);
	pipeline_destroy(p);
	pipeline_destroy(gray);
	/* 75 x 50, then 45 x 30 */
	p = parse("[[\"CenterCrop\",[100,151]],[\"Resize\",50],[\"Resize\",{\"size\":40,\"max_size\":45}]]");
	pipeline_shape(p, shape);
	ck_assert(shape[1] == 30 && shape[2] == 45);
	pipeline_destroy(p);
}
END_TEST

START_TEST(test_uint8_leaves_normalisation_to_the_trainer)
{
	/* With uint8 the mean and deviation are reported, with floats they are applied; without Normalize nothing is
	 * reported. */
	struct pipeline *bytes = parse("val224"), *floats = parse_as("val224", DTYPE_FLOAT32, LAYOUT_NCHW),
			*none = parse("[[\"CenterCrop\",8]]");
	float mean[3], std[3];

	ck_assert(pipeline_normalize(bytes, mean, std));
	ck_assert(mean[1] == 0.456f && std[2] == 0.225f);
	ck_assert(!pipeline_normalize(floats, mean, std));
	ck_assert(!pipeline_normalize(none, mean, std));
	pipeline_destroy(bytes);
	pipeline_destroy(floats);
	pipeline_destroy(none);
}
END_TEST

START_TEST(test_mistakes_are_named)
{
	/* Each message names the op and argument, the value and what was expected. */
	static const struct {
		const char *text, *words;
	} mistakes[] = {
		{ "", "not known|train224" },
		{ "train225", "'train225'|train224|val224|JSON" },
		{ "[", "JSON|line 1" },
		{ "[]", "1 to 64 ops" },
		{ "[1]", "op 1|Name" },
		{ "[[\"CenterCrop\",8],[\"RandomResizedCorp\",8]]",
		  "op 2|'RandomResizedCorp'|did you mean 'RandomResizedCrop'?" },
		{ "[[\"centercrop\",8]]", "did you mean 'CenterCrop'?" },
		{ "[[\"Mosaic\",8]]", "op 1|'Mosaic' is not known|in the training loop|batchd.serve" },
		{ "[[\"CenterCrop\",8],[\"RandomApply\",[\"rand-m9-inc1\"]]]",
		  "op 2.1 'rand-m9-inc1' is a text of timm's|python3 -m batchd.ops|\"rand-m9-inc1\"" },
		{ "[\"3a\"]", "op 1 '3a' is a text of timm's" },
		{ "augmix-m3", "'augmix-m3' is a text of timm's" },
		{ "[\"randy-m9\"]", "op 1 'randy-m9' is not known" },
		{ "[[\"CenterCrop\",8],[\"TimmAutoAugment\",[[[\"Rotate\",1,5]]],{\"interpolation\":\"box\"}]]",
		  "op 2 'TimmAutoAugment'|'interpolation' is \"box\"|bilinear" },
		{ "[[\"CenterCrop\"]]", "op 1|'size' is missing|1 to 8192" },
		{ "[[\"CenterCrop\",8193]]", "'size' is 8193|1 to 8192" },
		{ "[[\"CenterCrop\",0]]", "'size' is 0" },
		{ "[[\"CenterCrop\",7.5]]", "'size' is 7.5" },
		{ "[[\"CenterCrop\",[8,8,8]]]", "'size' is [8,8,8]|[height, width]" },
		{ "[[\"CenterCrop\",8,8]]", "takes at most 1|got 2" },
		{ "[[\"CenterCrop\",{\"sise\":8}]]", "no argument 'sise'|it has: size" },
		{ "[[\"CenterCrop\",8,{\"size\":8}]]", "'size' twice" },
		{ "[[\"ToTensor\",1],[\"CenterCrop\",8]]", "takes no arguments" },
		{ "[[\"Resize\",[8,8],\"sinc\"]]", "op 1|'interpolation' is \"sinc\"|\"bilinear\"" },
		{ "[[\"Resize\",[8,8],{\"antialias\":false}]]", "'antialias' is false|always antialiased" },
		{ "[[\"Resize\",8,{\"max_size\":8}],[\"CenterCrop\",8]]", "'max_size' is 8|more than size" },
		{ "[[\"RandomResizedCrop\",8,[0.5,0.1]]]", "'scale' is [0.5,0.1]|min <= max" },
		{ "[[\"RandomResizedCrop\",8,{\"ratio\":[0,1]}]]", "'ratio'" },
		{ "[[\"CenterCrop\",8],[\"RandomHorizontalFlip\",1.5]]", "op 2|'p' is 1.5|0 to 1" },
		{ "[[\"CenterCrop\",8],[\"ColorJitter\",-1]]", "'brightness' is -1" },
		{ "[[\"CenterCrop\",8],[\"ColorJitter\",{\"hue\":0.6}]]", "'hue' is 0.6" },
		{ "[[\"CenterCrop\",8],[\"Pad\",[1,2,3]]]", "'padding' is [1,2,3]|[left, top, right, bottom]" },
		{ "[[\"CenterCrop\",8],[\"Pad\",[-3,0,-5,0]]]", "'Pad'|leaves nothing of the 8 x 8 pixels" },
		{ "[[\"CenterCrop\",8],[\"Pad\",-8193]]", "'padding' is -8193|-8192 to 8192" },
		{ "[[\"CenterCrop\",8],[\"RandomCrop\",4,-1]]", "'padding' is -1| 0 to 8192" },
		{ "[[\"CenterCrop\",8],[\"Pad\",1,256]]", "'fill' is 256|0 to 255" },
		{ "[[\"CenterCrop\",8],[\"Pad\",1,0,\"wrap\"]]", "'padding_mode' is \"wrap\"|\"symmetric\"" },
		{ "[[\"CenterCrop\",8],[\"Grayscale\",2]]", "'num_output_channels' is 2|1 or 3" },
		{ "[[\"CenterCrop\",8],[\"Grayscale\",1],\"ToTensor\",[\"Normalize\",[1,2,3],[1,1,1]]]",
		  "one channel" },
		{ "[[\"CenterCrop\",8],[\"Normalize\",0,1]]", "op 2 'Normalize' needs ToTensor" },
		{ "[[\"CenterCrop\",8],\"ToTensor\",[\"Normalize\",0,0]]", "'std' is 0" },
		{ "[\"ToTensor\",[\"CenterCrop\",8]]", "op 2 'CenterCrop'|before ToTensor" },
		{ "[[\"CenterCrop\",8],\"ToTensor\",\"ToTensor\"]", "op 3 'ToTensor' is there twice" },
		{ "[[\"Resize\",256]]", "size depends on the image|CenterCrop" },
		{ "[\"RandomHorizontalFlip\"]", "size depends on the image" },
		{ "[[\"Resize\",[8,8]],[\"RandomCrop\",9]]", "op 2|9 x 9|8 x 8|pad_if_needed" },
		{ "[[\"CenterCrop\",8000],[\"Pad\",100]]", "8200 x 8200|8192" },
	};

	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
		expect_refusal(mistakes[i].text, DTYPE_UINT8, mistakes[i].words);
	expect_refusal("[[\"CenterCrop\",8]]", DTYPE_FLOAT32, "float32|ToTensor|uint8");
	expect_refusal("val224", DTYPE_INT64, "int64|uint8, float16 or float32");
}
END_TEST

START_TEST(test_both_sides_of_the_limits)
{
	/* 64 ops and 16 KiB of text are accepted, one more is not. */
	char text[20000] = "[[\"CenterCrop\",8]";
	struct pipeline *p;

	for (int i = 1; i < 64; i++)
		strcat(text, ",\"RandomHorizontalFlip\"");
	strcat(text, "]");
	p = parse(text);
	pipeline_destroy(p);
	strcpy(text + strlen(text) - 1, ",\"RandomVerticalFlip\"]");
	expect_refusal(text, DTYPE_UINT8, "1 to 64 ops");

	memset(text, ' ', sizeof(text));
	memcpy(text, "[[\"CenterCrop\",8]", 17);
	memcpy(text + 16384 - 1, "]", 2);
	p = parse(text);
	pipeline_destroy(p);
	memcpy(text + 16384 - 1, " ]", 3);
	expect_refusal(text, DTYPE_UINT8, "16384 bytes");
}
END_TEST

START_TEST(test_rows_of_policies_depend_on_their_key_alone)
{
	/* The same as above with containers, policies and noise: in one run, and from a prefix. */
	unsigned long n, n_other;
	uint8_t *file = jpeg_new(211, 157, &n), *other = jpeg_new(640, 80, &n_other);
	struct pipeline *p = parse_as(policies, DTYPE_FLOAT32, LAYOUT_NCHW);
	struct bench used = bench_new(), fresh = bench_new();

	for (uint64_t index = 0; index < 40; index++) {
		struct sample_key key = { 7, 3, index }, next_epoch = { 7, 4, index };
		uint8_t *noise = run(used, p, other, n_other, key);
		uint8_t *a = run(used, p, file, n, key), *b = run_by_prefix(fresh, p, file, n, key),
			*c = run(fresh, p, file, n, next_epoch);

		ck_assert_mem_eq(a, b, pipeline_row_bytes(p));
		ck_assert(memcmp(a, c, pipeline_row_bytes(p)) != 0);
		free(noise);
		free(a);
		free(b);
		free(c);
	}
	bench_free(used);
	bench_free(fresh);
	pipeline_destroy(p);
	free(file);
	free(other);
}
END_TEST

START_TEST(test_a_row_depends_on_its_key_alone)
{
	/* A worker with earlier work gives the same row as a fresh one; another key gives another row. */
	unsigned long n, n_other;
	uint8_t *file = jpeg_new(211, 157, &n), *other = jpeg_new(640, 80, &n_other);
	struct pipeline *p = parse(everything), *crop = parse("val224");
	struct bench used = bench_new(), fresh = bench_new();

	for (uint64_t index = 0; index < 20; index++) {
		struct sample_key key = { 7, 3, index }, next_epoch = { 7, 4, index };
		uint8_t *noise = run(used, index % 2 ? p : crop, other, n_other, key);
		uint8_t *a = run(used, p, file, n, key), *b = run(fresh, p, file, n, key),
			*c = run(fresh, p, file, n, next_epoch);

		ck_assert_mem_eq(a, b, pipeline_row_bytes(p));
		ck_assert(memcmp(a, c, pipeline_row_bytes(p)) != 0);
		free(noise);
		free(a);
		free(b);
		free(c);
	}
	bench_free(used);
	bench_free(fresh);
	pipeline_destroy(p);
	pipeline_destroy(crop);
	free(file);
	free(other);
}
END_TEST

START_TEST(test_resumed_rows_are_the_same_rows)
{
	/* Prefix, itself or a copy of it, and the rest give the same as one run, wherever the prefix ends. */
	static const char *const texts[] = {
		"train224",
		"val224",
		everything,
		"[[\"Resize\",64],[\"Pad\",5],[\"CenterCrop\",60],\"Grayscale\","
		"[\"RandomCrop\",50]]",
		"[[\"CenterCrop\",100],[\"RandomHorizontalFlip\",1],[\"Resize\",[40,30]],[\"RandomCrop\",20]]",
		"[[\"Resize\",[40,30]],[\"RandomCrop\",[40,30],4]]",
		"[[\"Resize\",64],[\"CenterCrop\",60],[\"Pad\",3],[\"RandomCrop\",64,[1,2,3,4],false,7]]",
		"[[\"Resize\",[40,30]],[\"RandomVerticalFlip\",0.5],\"RandomHorizontalFlip\",[\"ColorJitter\",0.4,0.4]]",
		"[[\"Pad\",9],[\"RandomVerticalFlip\",0.5],[\"RandomResizedCrop\",32]]",
		"[[\"Resize\",[40,30]],[\"RandomGrayscale\",0.5],[\"RandomCrop\",40,8]]"
	};
	unsigned long n;
	uint8_t *file = jpeg_new(300, 200, &n);
	struct bench b = bench_new();

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct pipeline *p = parse(texts[i]);

		for (uint64_t index = 0; index < 8; index++) {
			struct sample_key key = { 1, 0, index };
			uint8_t *whole = run(b, p, file, n, key), *resumed = run_by_prefix(b, p, file, n, key);
			uint8_t *at_once = run_both_halves(b, p, file, n, key);

			ck_assert_msg(memcmp(whole, resumed, pipeline_row_bytes(p)) == 0, "%s, index %d", texts[i],
				      (int)index);
			ck_assert_msg(memcmp(whole, at_once, pipeline_row_bytes(p)) == 0, "%s, index %d, at once",
				      texts[i], (int)index);
			free(at_once);
			free(whole);
			free(resumed);
		}
		pipeline_destroy(p);
	}
	bench_free(b);
	free(file);
}
END_TEST

/* 40 samples of two files into row. Returns how many failed; asserts nothing itself, because every ck_assert allocates.
 */
static int run_round(struct bench b, const struct pipeline *p, uint8_t *const files[2], const unsigned long n[2],
		     uint8_t *row)
{
	int n_failed = 0;

	for (uint64_t index = 0; index < 40; index++) {
		struct image_info info;
		struct image_error err;

		n_failed +=
			decoder_open(b.decoder, files[index % 2], n[index % 2], false, &info, &err) != 0 ||
			pipeline_run(p, b.worker, b.decoder, &info, (struct sample_key){ 2, 0, index }, row, &err) != 0;
		decoder_close(b.decoder);
	}
	return n_failed;
}

START_TEST(test_steady_state_allocates_nothing)
{
	/* Once a worker has seen its samples, seeing them again allocates nothing. */
	static const char *const texts[] = { "train224", "val224", everything, policies };
	unsigned long n[2], before, after;
	int n_failed;
	uint8_t *files[2] = { jpeg_new(300, 200, &n[0]), jpeg_new(190, 333, &n[1]) };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct pipeline *p = parse_as(texts[i], DTYPE_FLOAT32, LAYOUT_NCHW);
		struct bench b = bench_new();
		uint8_t *row = malloc(pipeline_row_bytes(p));

		ck_assert_int_eq(run_round(b, p, files, n, row), 0);
		before = n_allocations;
		n_failed = run_round(b, p, files, n, row);
		after = n_allocations;
		ck_assert_int_eq(n_failed, 0);
		ck_assert_msg(after == before, "%s: %lu allocations in 40 samples", texts[i], after - before);
		free(row);
		bench_free(b);
		pipeline_destroy(p);
	}
	ck_assert(!CAN_COUNT || n_allocations > 0);
	free(files[0]);
	free(files[1]);
}
END_TEST

struct crew {
	const struct pipeline *p;
	const uint8_t *file;
	size_t n;
	uint8_t *rows[24]; /* by index; each thread makes all */
};

static void *crew_member(void *arg)
{
	struct crew *crew = arg;
	struct bench b = bench_new();

	for (uint64_t i = 0; i < 24; i++)
		crew->rows[i] = run(b, crew->p, crew->file, crew->n, (struct sample_key){ 1, 1, i });
	bench_free(b);
	return NULL;
}

START_TEST(test_threads_share_a_pipeline)
{
	/* Four threads run one pipeline at once, each with its own worker, and make the same rows. */
	unsigned long n;
	uint8_t *file = jpeg_new(120, 90, &n);
	struct pipeline *p = parse(everything);
	struct crew crews[4];
	pthread_t threads[4];

	for (int t = 0; t < 4; t++) {
		crews[t] = (struct crew){ .p = p, .file = file, .n = n };
		ck_assert_int_eq(pthread_create(&threads[t], NULL, crew_member, &crews[t]), 0);
	}
	for (int t = 0; t < 4; t++)
		pthread_join(threads[t], NULL);
	for (int t = 0; t < 4; t++) {
		for (int i = 0; i < 24; i++) {
			ck_assert_mem_eq(crews[t].rows[i], crews[0].rows[i], pipeline_row_bytes(p));
			if (t > 0)
				free(crews[t].rows[i]);
		}
	}
	for (int i = 0; i < 24; i++)
		free(crews[0].rows[i]);
	pipeline_destroy(p);
	free(file);
}
END_TEST

static int outcome(const char *text, uint32_t width, uint32_t height, struct image_error *err)
{
	struct pipeline *p = parse(text);
	struct image i = { calloc((size_t)width * height, 3), (size_t)width * 3, width, height };
	struct bench b = bench_new();
	uint8_t *row = malloc(pipeline_row_bytes(p));
	int rc = pipeline_resume(p, b.worker, &i, (struct sample_key){ 0, 0, 0 }, row, err);

	free(row);
	free(i.rgb);
	bench_free(b);
	pipeline_destroy(p);
	return rc;
}

START_TEST(test_images_that_do_not_fit_are_outcomes)
{
	/* Too small for a crop, or so long that a resize would explode: an error of the sample, with a text, before
	 * memory is spent. */
	struct image_error err = { "" };

	ck_assert_int_eq(outcome("[[\"RandomCrop\",32]]", 31, 40, &err), IMAGE_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(err.text, "31 x 40"));
	ck_assert_int_eq(outcome("[[\"RandomCrop\",32]]", 32, 32, &err), 0);
	ck_assert_int_eq(outcome("[[\"RandomCrop\",{\"size\":32,\"pad_if_needed\":true}]]", 5, 40, &err), 0);
	ck_assert_int_eq(
		outcome("[[\"RandomHorizontalFlip\",0],[\"Resize\",4096],[\"ColorJitter\",0.5],[\"CenterCrop\",8]]",
			100, 25000, &err),
		IMAGE_E_LIMIT);
	ck_assert_int_eq(outcome("[[\"RandomHorizontalFlip\",0],[\"Resize\",8192],[\"CenterCrop\",8]]", 1, 60000, &err),
			 IMAGE_E_LIMIT);
	/* A prefix of another pipeline (another one's cache entry) is detected. */
	ck_assert_int_eq(outcome("[[\"CenterCrop\",8]]", 9, 8, &err), IMAGE_E_CORRUPT);
	/* Without an op that needs the whole image, only the kept part is computed, so the same factor is accepted. */
	ck_assert_int_eq(
		outcome("[[\"RandomHorizontalFlip\",0],[\"Resize\",4096],[\"CenterCrop\",8]]", 100, 25000, &err), 0);
}
END_TEST

SUITE(pipeline)
{
	Suite *s = suite_create("pipeline");
	TCase *c = tcase_create("pipeline");

	tcase_add_test(c, test_philox_gives_the_published_numbers);
	tcase_add_test(c, test_every_part_of_the_key_matters);
	tcase_add_test(c, test_a_row_s_seed_is_philox_of_its_position);
	tcase_add_test(c, test_ranges_are_kept);
	tcase_add_test(c, test_named_pipelines_are_what_they_stand_for);
	tcase_add_test(c, test_canonical_text_is_a_fixed_point);
	tcase_add_test(c, test_shapes_follow_layout_dtype_and_channels);
	tcase_add_test(c, test_uint8_leaves_normalisation_to_the_trainer);
	tcase_add_test(c, test_mistakes_are_named);
	tcase_add_test(c, test_both_sides_of_the_limits);
	tcase_add_test(c, test_a_row_depends_on_its_key_alone);
	tcase_add_test(c, test_rows_of_policies_depend_on_their_key_alone);
	tcase_add_test(c, test_resumed_rows_are_the_same_rows);
	tcase_add_test(c, test_steady_state_allocates_nothing);
	tcase_add_test(c, test_threads_share_a_pipeline);
	tcase_add_test(c, test_images_that_do_not_fit_are_outcomes);
	suite_add_tcase(s, c);
	return s;
}
