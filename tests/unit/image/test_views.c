/* Views: what is accepted, what is refused, and that each view is what its pipeline makes alone, with random numbers of
 * its own. (tests/system/transforms/test_views.py compares views with Pillow and torchvision.) */
#include "image/transform/views.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/jpegs.h"
#include "support/suite.h"

static const struct image_form unknown = { .n_channels = 3 };

/* DINO's crops, smaller: blurs, colours and solarizing included. */
#define LARGE \
	"[[\"RandomResizedCrop\",48,[0.4,1.0]],\"RandomHorizontalFlip\",[\"RandomApply\",[[\"ColorJitter\",0.4,0.4,0.2,0.1]],0.8],\"ToTensor\"]"
#define SMALL \
	"[[\"RandomResizedCrop\",{\"size\":24,\"scale\":[0.05,0.4],\"interpolation\":\"bicubic\"}],[\"RandomGrayscale\",0.5]]"
static const char crops[] = "{\"global\":{\"views\":[" LARGE "],\"n\":2},\"local\":{\"views\":[" SMALL "],\"n\":6}}";

static struct pipeline *parse(const char *text)
{
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;

	ck_assert_msg(views_parse(text, &unknown, DTYPE_UINT8, LAYOUT_NHWC, &p, &err) == 0, "%s: %s", text, err.text);
	return p;
}

static void expect_refusal(const char *text, enum dtype dtype, const char *word)
{
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;

	ck_assert_msg(views_parse(text, &unknown, dtype, LAYOUT_NHWC, &p, &err) == -EINVAL, "'%.100s' was not refused",
		      text);
	ck_assert_msg(strstr(err.text, word) != NULL, "'%s' does not say '%s'", err.text, word);
	ck_assert_ptr_null(strchr(err.text, '\n'));
}

static const char *name_of(const struct pipeline *p, unsigned k)
{
	static char name[64];

	ck_assert(views_name(p, k, "image", name, sizeof(name)));
	return name;
}

START_TEST(test_views_have_names_and_a_text_that_means_the_same)
{
	/* Proves the names of a list, of a dictionary and of repeated views, and that the canonical text is a fixed
	 * point. */
	static const char *const texts[] = { crops, "{\"\":{\"views\":[\"train224\",\"val224\"]}}",
					     "{\"only\":\"val224\"}" };
	struct pipeline *p = parse(texts[1]);

	ck_assert_uint_eq(views_n(p), 2);
	ck_assert_str_eq(name_of(p, 0), "image");
	ck_assert_str_eq(name_of(p, 1), "image.1");
	pipeline_destroy(p);
	p = parse(crops);
	ck_assert_uint_eq(views_n(p), 8);
	ck_assert_str_eq(name_of(p, 0), "global");
	ck_assert_str_eq(name_of(p, 1), "global.1");
	ck_assert_str_eq(name_of(p, 7), "local.5");
	ck_assert_uint_eq(pipeline_row_bytes(views_at(p, 0)), 48 * 48 * 3);
	ck_assert_uint_eq(pipeline_row_bytes(views_at(p, 7)), 24 * 24 * 3);
	pipeline_destroy(p);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct pipeline *again;

		p = parse(texts[i]);
		again = parse(pipeline_text(p));
		ck_assert_str_eq(pipeline_text(again), pipeline_text(p));
		ck_assert_uint_eq(views_n(again), views_n(p));
		pipeline_destroy(again);
		pipeline_destroy(p);
	}
	p = parse("val224");
	ck_assert_uint_eq(views_n(p), 1);
	ck_assert_str_eq(name_of(p, 0), "image");
	pipeline_destroy(p);
}
END_TEST

START_TEST(test_wrong_views_are_refused_with_their_name)
{
	/* Proves that no text makes more views, pixels or ops than the limits, and that a message says which view is
	 * wrong. */
	static char long_text[16 * 1024 + 2], many[16 * 1024];
	size_t n;

	expect_refusal("{}", DTYPE_UINT8, "empty");
	expect_refusal("{\"a\":1}", DTYPE_UINT8, "'a'");
	expect_refusal("{\"a\":\"val225\"}", DTYPE_UINT8, "view 'a'");
	expect_refusal("{\"a\":\"val224\",\"a\":\"val224\"}", DTYPE_UINT8, "JSON");
	expect_refusal("{\"a\":{\"views\":[\"val224\"],\"n\":2},\"a.1\":\"val224\"}", DTYPE_UINT8, "'a.1'");
	expect_refusal("{\"a b\":\"val224\"}", DTYPE_UINT8, "ASCII");
	expect_refusal("{\"a\":{\"views\":[]}}", DTYPE_UINT8, "1 to 64");
	expect_refusal("{\"a\":{\"views\":[\"val224\"],\"n\":0}}", DTYPE_UINT8, "1 to 64");
	expect_refusal("{\"a\":{\"views\":[\"val224\"],\"n\":65}}", DTYPE_UINT8, "1 to 64");
	expect_refusal("{\"a\":{\"views\":[\"val224\"],\"n\":-1}}", DTYPE_UINT8, "1 to 64");
	expect_refusal("{\"a\":{\"views\":[\"val224\"],\"k\":1}}", DTYPE_UINT8, "1 to 64");
	expect_refusal("{\"a\":{\"views\":[\"val224\"],\"n\":64},\"b\":\"val224\"}", DTYPE_UINT8, "64 views");
	expect_refusal("{\"a\":[[\"CenterCrop\",8]]}", DTYPE_FLOAT32, "ToTensor");
	expect_refusal("{\"a\":{\"views\":[[[\"CenterCrop\",8192]]],\"n\":3}}", DTYPE_UINT8, "pixels");
	pipeline_destroy(parse("{\"a\":{\"views\":[[[\"CenterCrop\",8192]]],\"n\":2}}"));
	pipeline_destroy(parse("{\"a\":{\"views\":[[[\"CenterCrop\",8]]],\"n\":64}}"));

	memset(long_text, ' ', sizeof(long_text) - 1);
	memcpy(long_text, "{\"a\":\"val224\"}", 14);
	expect_refusal(long_text, DTYPE_UINT8, "longer");

	n = (size_t)sprintf(many, "{\"a\":{\"views\":[[[\"CenterCrop\",8]");
	for (int i = 0; i < 63; i++)
		n += (size_t)sprintf(many + n, ",\"RandAugment\"");
	sprintf(many + n, "]],\"n\":64}}");
	expect_refusal(many, DTYPE_UINT8, "too many ops");
}
END_TEST

struct bench {
	struct pipeline_worker *worker;
	struct decoder *decoder;
	uint8_t *file;
	size_t n_file;
};

static struct bench bench_new(void)
{
	static const struct jpeg_recipe picture = {
		.width = 233, .height = 187, .n_components = 3, .h = 2, .v = 2, .quality = 85, .noise = 40
	};
	struct bench b = { pipeline_worker_create(), decoder_create(&decode_limits_default), NULL, 0 };

	b.file = jpeg_make(&picture, 7, &b.n_file);
	ck_assert(b.worker && b.decoder && b.file);
	return b;
}

static void bench_free(struct bench b)
{
	decoder_destroy(b.decoder);
	pipeline_worker_destroy(b.worker);
	free(b.file);
}

struct rows {
	void *row[VIEWS_MAX];
	unsigned n;
};

static struct rows rows_new(const struct pipeline *p)
{
	struct rows r = { .n = views_n(p) };

	for (unsigned k = 0; k < r.n; k++)
		r.row[k] = calloc(1, pipeline_row_bytes(views_at(p, k)));
	return r;
}

static void rows_free(struct rows *r)
{
	for (unsigned k = 0; k < r->n; k++)
		free(r->row[k]);
}

static struct rows run(const struct bench *b, const struct pipeline *p, struct sample_key key)
{
	struct rows r = rows_new(p);
	struct image_info info;
	struct image_error err = { "" };

	ck_assert_int_eq(decoder_open(b->decoder, b->file, b->n_file, false, &info, &err), 0);
	ck_assert_msg(views_run(p, b->worker, b->decoder, &info, key, r.row, &err) == 0, "%s", err.text);
	decoder_close(b->decoder);
	return r;
}

/* By the decoded cache's way, its image still where the prefix has put it. */
static struct rows run_in_halves(const struct bench *b, const struct pipeline *p, struct sample_key key)
{
	struct rows r = rows_new(p);
	struct image_info info;
	struct image_error err = { "" };
	struct image prefix;

	ck_assert_int_eq(decoder_open(b->decoder, b->file, b->n_file, false, &info, &err), 0);
	ck_assert_msg(pipeline_prefix(p, b->worker, b->decoder, &info, &prefix, &err) == 0, "%s", err.text);
	ck_assert_msg(views_resume(p, b->worker, &prefix, key, r.row, &err) == 0, "%s", err.text);
	decoder_close(b->decoder);
	return r;
}

static void *run_alone(const struct bench *b, const struct pipeline *view, struct sample_key key)
{
	void *row = calloc(1, pipeline_row_bytes(view));
	struct image_info info;
	struct image_error err = { "" };

	ck_assert_int_eq(decoder_open(b->decoder, b->file, b->n_file, false, &info, &err), 0);
	ck_assert_int_eq(pipeline_run(view, b->worker, b->decoder, &info, key, row, &err), 0);
	decoder_close(b->decoder);
	return row;
}

static void expect_same(const struct pipeline *p, const struct rows *a, const struct rows *b)
{
	for (unsigned k = 0; k < a->n; k++)
		ck_assert_msg(memcmp(a->row[k], b->row[k], pipeline_row_bytes(views_at(p, k))) == 0, "view %u", k);
}

START_TEST(test_a_view_is_what_its_pipeline_makes_alone)
{
	/* Proves that decoding once for all views changes no byte of any, whatever the views need: without and with the
	 * decoded cache, for a prefix that they share and for ones that they do not. */
	static const char *const texts[] = {
		crops,
		"{\"\":{\"views\":[[[\"Resize\",90],[\"RandomCrop\",40],\"RandomHorizontalFlip\"]],\"n\":3}}",
		"{\"a\":[[\"Resize\",90],[\"RandomCrop\",40]],\"b\":[[\"CenterCrop\",64]],\"c\":[[\"CenterCrop\",8],\"RandomVerticalFlip\"]}",
		"{\"\":{\"views\":[[[\"Resize\",[40,40]],\"RandAugment\",\"RandAugment\",\"RandAugment\"]],\"n\":4}}",
		"{\"a\":[[\"Resize\",[32,40]],[\"GaussianBlur\",5]],\"b\":[[\"RandomResizedCrop\",16],\"RandAugment\"]}",
	};
	struct bench b = bench_new();

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		struct pipeline *p = parse(texts[i]);

		for (uint64_t index = 0; index < 20; index++) {
			struct sample_key key = { 3, 1, index };
			struct rows whole = run(&b, p, key), halves = run_in_halves(&b, p, key);

			expect_same(p, &whole, &halves);
			for (unsigned k = 0; k < views_n(p); k++) {
				const struct pipeline *view = views_at(p, k);
				void *alone = run_alone(&b, view, key);

				ck_assert_msg(memcmp(alone, whole.row[k], pipeline_row_bytes(view)) == 0,
					      "%s, view %u, index %u", texts[i], k, (unsigned)index);
				free(alone);
			}
			rows_free(&whole);
			rows_free(&halves);
		}
		pipeline_destroy(p);
	}
	bench_free(b);
}
END_TEST

START_TEST(test_views_draw_numbers_of_their_own)
{
	/* Proves that equal pipelines make different views, that the first view is the pipeline without views, and that
	 * a view does not depend on what the others are. */
	struct bench b = bench_new();
	struct pipeline *three = parse("{\"\":{\"views\":[" LARGE "],\"n\":3}}"), *one = parse(LARGE),
			*others = parse("{\"a\":" SMALL ",\"b\":" SMALL ",\"c\":" LARGE "}");
	size_t n = pipeline_row_bytes(one);

	for (uint64_t index = 0; index < 8; index++) {
		struct sample_key key = { 9, 0, index };
		struct rows r = run(&b, three, key), o = run(&b, others, key);
		void *alone = run_alone(&b, one, key);

		ck_assert_mem_eq(alone, r.row[0], n);
		ck_assert(memcmp(r.row[0], r.row[1], n) && memcmp(r.row[1], r.row[2], n) &&
			  memcmp(r.row[0], r.row[2], n));
		ck_assert_mem_eq(o.row[2], r.row[2], n);
		free(alone);
		rows_free(&r);
		rows_free(&o);
	}
	pipeline_destroy(three);
	pipeline_destroy(one);
	pipeline_destroy(others);
	bench_free(b);
}
END_TEST

START_TEST(test_the_processor_time_is_for_all_views_together)
{
	/* Proves that 64 costly views of a sample do not get 64 times the time of one. */
	struct bench b = bench_new();
	struct pipeline *p =
		parse("{\"a\":{\"views\":[[[\"Resize\",[1500,1500]],[\"GaussianBlur\",[23,23]]]],\"n\":59}}");
	struct rows r = rows_new(p);
	struct image_info info;
	struct image_error err = { "" };

	pipeline_worker_limit(b.worker, 300 * 1000000); /* more than one view takes */
	ck_assert_int_eq(decoder_open(b.decoder, b.file, b.n_file, false, &info, &err), 0);
	ck_assert_int_eq(views_run(p, b.worker, b.decoder, &info, (struct sample_key){ 1, 2, 3 }, r.row, &err),
			 IMAGE_E_TIME);
	decoder_close(b.decoder);
	rows_free(&r);
	pipeline_destroy(p);
	bench_free(b);
}
END_TEST

SUITE(views)
{
	Suite *s = suite_create("views");
	TCase *t = tcase_create("views");

	tcase_add_test(t, test_views_have_names_and_a_text_that_means_the_same);
	tcase_add_test(t, test_wrong_views_are_refused_with_their_name);
	tcase_add_test(t, test_a_view_is_what_its_pipeline_makes_alone);
	tcase_add_test(t, test_views_draw_numbers_of_their_own);
	tcase_add_test(t, test_the_processor_time_is_for_all_views_together);
	suite_add_tcase(s, t);
	return s;
}
