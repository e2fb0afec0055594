/* Containers of ops: what they accept and refuse, their sizes, and the place of each op inside in the random key.
 * (tests/system/transforms/test_op_containers.py has their probabilities and their pixels.) */
#include "image/transform/pipeline.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "image/kernels/processor.h"
#include "image/transform/noise.h"
#include "image/transform/random.h"
#include "support/pipelines.h"
#include "support/suite.h"

static struct pipeline *parse(const char *text)
{
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;

	ck_assert_msg(pipeline_parse(text, DTYPE_UINT8, LAYOUT_NHWC, &p, &err) == 0, "%s: %s", text, err.text);
	return p;
}

static void expect_text(const char *text, const char *same)
{
	struct pipeline *a = parse(text), *b = parse(same);

	ck_assert_str_eq(pipeline_text(a), pipeline_text(b));
	pipeline_destroy(a);
	pipeline_destroy(b);
}

START_TEST(test_a_compose_gives_way_to_its_ops)
{
	/* In the pipeline itself and in lists whose ops all run, conversions and Identity vanish; torchvision's other
	 * spellings of ToTensor are ToTensor. A RandomChoice keeps its Identity: it is one of the alternatives. */
	expect_text("[[\"Compose\",[[\"Compose\",{\"transforms\":[[\"CenterCrop\",8]]}],\"ToTensor\"]],"
		    "[\"Normalize\",0.5,0.5]]",
		    "[[\"CenterCrop\",8],\"ToTensor\",[\"Normalize\",0.5,0.5]]");
	expect_text("[\"ToImage\",[\"CenterCrop\",8],\"PILToTensor\",\"Identity\",[\"ToDtype\",\"torch.float32\",true],"
		    "\"ToPureTensor\"]",
		    "[[\"CenterCrop\",8],[\"ToTensor\"]]");
	expect_text("[[\"CenterCrop\",8],[\"ToDtype\",\"uint8\"],[\"ConvertImageDtype\",\"float32\"]]",
		    "[[\"CenterCrop\",8],\"ToTensor\"]");
	expect_text("[[\"CenterCrop\",8],[\"RandomApply\",[\"ToImage\",\"RandomHorizontalFlip\",\"Identity\"]]]",
		    "[[\"CenterCrop\",8],[\"RandomApply\",[\"RandomHorizontalFlip\"],0.5]]");
	struct pipeline *p = parse("[[\"CenterCrop\",8],[\"RandomChoice\",[\"Identity\",\"RandomHorizontalFlip\"]]]");

	ck_assert_ptr_nonnull(strstr(pipeline_text(p), "[[\"Identity\",{}],[\"RandomHorizontalFlip\""));
	pipeline_destroy(p);
}
END_TEST

START_TEST(test_the_canonical_text_of_containers_is_a_fixed_point)
{
	static const char text[] =
		"[[\"RandomResizedCrop\",32],[\"RandomApply\",{\"transforms\":[[\"ColorJitter\",0.4],\"RandomGrayscale\"],"
		"\"p\":0.8}],[\"RandomChoice\",[\"Identity\",[\"Compose\",[\"RandomHorizontalFlip\",[\"RandomOrder\","
		"[\"RandomVerticalFlip\",[\"RandomGrayscale\",1]]]]]],[1,3]],\"ToTensor\"]";
	struct pipeline *p = parse(text), *again = parse(pipeline_text(p));

	ck_assert_str_eq(pipeline_text(p), pipeline_text(again));
	ck_assert_ptr_nonnull(strstr(pipeline_text(p), "\"p\":[1.0,3.0]"));
	pipeline_destroy(p);
	pipeline_destroy(again);
}
END_TEST

START_TEST(test_the_prefix_ends_before_a_container)
{
	/* What comes before the first choice is cached; nothing of what may or may not run is. */
	struct pipeline *p = parse("[[\"Resize\",20],[\"CenterCrop\",16],[\"RandomApply\",[[\"Grayscale\",3]]]]");

	ck_assert_ptr_nonnull(strstr(pipeline_prefix_text(p), "CenterCrop"));
	ck_assert_ptr_null(strstr(pipeline_prefix_text(p), "Grayscale"));
	pipeline_destroy(p);
}
END_TEST

START_TEST(test_every_way_through_a_container_must_give_one_size)
{
	/* The op that makes the difference is named, and a later op may settle it. */
	expect_refusal("[[\"CenterCrop\",8],[\"RandomApply\",[[\"CenterCrop\",4]],0.5]]",
		       "op 2 'RandomApply'|different sizes|one size");
	expect_refusal("[\"RandomHorizontalFlip\",[\"RandomChoice\",[[\"CenterCrop\",8],[\"CenterCrop\",9]]]]",
		       "op 2 'RandomChoice'|different sizes");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomOrder\",[[\"Pad\",1],[\"CenterCrop\",8]]]]",
		       "op 2 'RandomOrder'|different sizes");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomChoice\",[\"Identity\",[\"Grayscale\",1]]]]",
		       "op 2 'RandomChoice'|one or of three channels|num_output_channels");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomApply\",[[\"RandomCrop\",9]]]]",
		       "op 2.1 'RandomCrop'|9 x 9|8 x 8");
	static const char *const fine[] = {
		"[[\"RandomApply\",[[\"CenterCrop\",4]],0.5],[\"Resize\",[8,8]]]",
		"[[\"RandomApply\",[[\"CenterCrop\",4]],1]]",
		"[[\"CenterCrop\",8],[\"RandomApply\",[[\"CenterCrop\",4]],0]]",
		"[[\"RandomChoice\",[[\"RandomResizedCrop\",8],[\"Compose\",[[\"Resize\",9],[\"RandomCrop\",8]]]]]]",
		"[[\"RandomChoice\",[[\"CenterCrop\",8],[\"CenterCrop\",9]],[1,0]]]",
		"[[\"CenterCrop\",8],[\"RandomOrder\",[\"RandomVerticalFlip\",[\"ColorJitter\",0.5],\"RandomGrayscale\"]]]",
	};

	for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		pipeline_destroy(parse(fine[i]));
}
END_TEST

START_TEST(test_mistakes_inside_are_named_by_their_place)
{
	expect_refusal("[[\"CenterCrop\",8],[\"RandomChoice\",[\"Identity\",[\"RandomApply\",[\"Mosaic\"]]]]]",
		       "op 2.2.1 'Mosaic' is not known");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomApply\",[[\"Resize\",\"x\"]]]]",
		       "op 2.1 'Resize'|'size' is \"x\"");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomApply\",[\"ToTensor\"]]]",
		       "op 2.1 'ToTensor' cannot be inside 'RandomApply': put it after");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomApply\",[],0.5]]", "'transforms' is []|1 to 64 ops");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomApply\",\"Identity\"]]", "'transforms' is \"Identity\"|list");
	expect_refusal("[[\"CenterCrop\",8],\"RandomOrder\"]", "'transforms' is missing");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomApply\",[\"Identity\"],1.5]]", "'p' is 1.5|0 to 1");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomChoice\",[\"Identity\"],[1,2]]]",
		       "'p' is [1,2]|each of the 1 ops");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomChoice\",[\"Identity\"],[-1]]]", "'p' is [-1]|0 to 1e9");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomChoice\",[\"Identity\",\"Identity\"],[0,0]]]",
		       "at least one is more than 0");
	expect_refusal("[[\"CenterCrop\",8],[\"ToDtype\",\"float32\"]]", "'scale'|0 to 1");
	expect_refusal("[[\"CenterCrop\",8],[\"ToDtype\",\"float16\",true]]", "\"float16\"|half precision|dtype");
}
END_TEST

/* [["CenterCrop",8], c(c(...c(["Identity"])))] with `depth` containers. */
static void nest(char *text, unsigned depth)
{
	strcpy(text, "[[\"CenterCrop\",8],");
	for (unsigned i = 0; i < depth; i++)
		strcat(text, "[\"RandomApply\",[");
	strcat(text, "\"Identity\"");
	for (unsigned i = 0; i < depth; i++)
		strcat(text, "]]");
	strcat(text, "]");
}

/* n_lists containers with n ops each. */
static void fill(char *text, const char *container, unsigned n_lists, unsigned n)
{
	strcpy(text, "[[\"CenterCrop\",8]");
	for (unsigned i = 0; i < n_lists; i++) {
		sprintf(text + strlen(text), ",[\"%s\",[", container);
		for (unsigned k = 0; k < n; k++)
			strcat(text, k ? ",\"RandomGrayscale\"" : "\"RandomGrayscale\"");
		strcat(text, "]]");
	}
	strcat(text, "]");
}

START_TEST(test_both_sides_of_the_limits_of_containers)
{
	/* 8 deep, 64 ops in a list, 16 in any order, 512 inside containers all together; one more is refused. */
	static char text[20000];

	nest(text, 8);
	pipeline_destroy(parse(text));
	nest(text, 9);
	expect_refusal(text, "'RandomApply'|8 deep");
	nest(text, 900);
	expect_refusal(text, "8 deep");
	fill(text, "RandomApply", 8, 64);
	pipeline_destroy(parse(text));
	fill(text, "RandomApply", 1, 65);
	expect_refusal(text, "op 2|1 to 64 ops");
	fill(text, "RandomApply", 9, 57);
	expect_refusal(text, "op 10|512");
	fill(text, "RandomOrder", 1, 16);
	pipeline_destroy(parse(text));
	fill(text, "RandomOrder", 1, 17);
	expect_refusal(text, "at most 16");
}
END_TEST

START_TEST(test_every_place_in_the_key_has_numbers_of_its_own)
{
	/* Places beyond the 8 bits of the counter, as nested ops and further views have them, share no numbers with
	 * each other, with those below, or with rows of a caller's own order; they depend on the whole key. */
	enum { N = 3000 };
	static uint64_t first[N];
	struct sample_key key = { 11, 2, 3 }, other_seed = { 12, 2, 3 }, other_epoch = { 11, 3, 3 },
			  other_index = { 11, 2, 4 };
	struct random r;

	for (uint32_t i = 0; i < N; i++) {
		uint32_t place = i < 2000 ? i : (i - 1999) << 16 | 63;

		random_init(&r, key, place);
		first[i] = (uint64_t)random_bits(&r) << 32;
		first[i] |= random_bits(&r);
		for (uint32_t k = 0; k < i; k++)
			ck_assert_msg(first[k] != first[i], "places %u and %u", k, i);
	}
	for (int i = 0; i < 3; i++) {
		random_init(&r, i == 0 ? other_seed : i == 1 ? other_epoch : other_index, 1000);
		ck_assert_uint_ne((uint64_t)random_bits(&r) << 32 | random_bits(&r), first[1000]);
	}
}
END_TEST

START_TEST(test_a_fork_does_not_end)
{
	/* 2^17 numbers of a fork differ from each other as random ones do, where the op's own numbers would run into the
	 * next op's; and forking twice gives two sequences. */
	enum { N = 1 << 17 };
	static uint8_t seen[(1u << 29) / 8];
	struct random r, fork, second;
	unsigned n_twice = 0;

	random_init(&r, (struct sample_key){ 5, 6, 7 }, 8);
	fork = random_fork(&r);
	second = random_fork(&r);
	ck_assert_uint_ne(random_bits(&fork), random_bits(&second));
	for (int i = 0; i < N; i++) {
		uint32_t x = random_bits(&fork) >> 3;

		n_twice += seen[x / 8] >> x % 8 & 1;
		seen[x / 8] |= (uint8_t)(1 << x % 8);
	}
	ck_assert_uint_gt(n_twice, 4); /* N^2 / 2^30 = 16 are expected */
	ck_assert_uint_lt(n_twice, 40);
}
END_TEST

START_TEST(test_noise_is_a_forks_normal_numbers)
{
	/* 2^20 numbers made in blocks, with and without SIMD, are those of random_fork and random_normal, bit for bit. */
	normal_prepare();
	for (int path = PROCESSOR_PLAIN; path <= PROCESSOR_AVX512; path++) {
		struct random r, fork;
		struct noise noise;
		double sum = 0.0, squares = 0.0;

		processor_limit((enum processor_path)path);
		random_init(&r, (struct sample_key){ 7, 2, 3 }, 4);
		fork = random_fork(&r);
		random_init(&r, (struct sample_key){ 7, 2, 3 }, 4);
		noise_init(&noise, &r);
		for (int i = 0; i < 1 << 20; i++) {
			float one = random_normal(&fork), other = noise_normal(&noise);

			ck_assert_mem_eq(&one, &other, sizeof(one));
			sum += (double)other;
			squares += (double)other * (double)other;
		}
		ck_assert_double_eq_tol(sum / (1 << 20), 0.0, 0.005);
		ck_assert_double_eq_tol(squares / (1 << 20), 1.0, 0.007);
	}
	processor_limit(PROCESSOR_AVX512);
}
END_TEST

START_TEST(test_noise_is_filled_in_as_it_comes_one_by_one)
{
	/* Runs of any length, one after the other, are the numbers that come one by one, the rare ones included. */
	enum { MOST = 300 };

	normal_prepare();
	for (int path = PROCESSOR_PLAIN; path <= PROCESSOR_AVX512; path++) {
		struct random r;
		struct noise one, many;
		float run[MOST];

		processor_limit((enum processor_path)path);
		random_init(&r, (struct sample_key){ 8, 2, 3 }, 4);
		noise_init(&one, &r);
		random_init(&r, (struct sample_key){ 8, 2, 3 }, 4);
		noise_init(&many, &r);
		for (int i = 0; i < 3000; i++) {
			size_t n = (size_t)(i * 7 % MOST);

			noise_fill(&many, run, n);
			for (size_t k = 0; k < n; k++) {
				float expected = noise_normal(&one);

				ck_assert_mem_eq(&run[k], &expected, sizeof(expected));
			}
		}
	}
	processor_limit(PROCESSOR_AVX512);
}
END_TEST

START_TEST(test_units_are_uniform)
{
	struct random r;
	double sum = 0.0, squares = 0.0;

	random_init(&r, (struct sample_key){ 1, 2, 3 }, 4);
	for (int i = 0; i < 10000; i++) {
		double x = random_unit(&r);

		ck_assert(x >= 0.0 && x < 1.0);
		sum += x;
		squares += x * x;
	}
	ck_assert_double_eq_tol(sum / 10000, 0.5, 0.012);
	ck_assert_double_eq_tol(squares / 10000, 1.0 / 3.0, 0.012);
}
END_TEST

/* Processor time of a run with this limit, which must have this outcome. */
static uint64_t time_of(const struct pipeline *p, const struct image *image, void *row, uint64_t limit_ns, int expected)
{
	struct pipeline_worker *w = pipeline_worker_create();
	struct image_error err = { "" };
	struct timespec began, ended;

	pipeline_worker_limit(w, limit_ns);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
	ck_assert_int_eq(pipeline_resume(p, w, image, (struct sample_key){ 1, 2, 3 }, row, &err), expected);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
	pipeline_worker_destroy(w);
	return (uint64_t)(ended.tv_sec - began.tv_sec) * 1000000000 + (uint64_t)ended.tv_nsec - (uint64_t)began.tv_nsec;
}

START_TEST(test_a_policy_ends_when_its_time_is_over)
{
	/* 36 steps on a large image are one op; it must not take all of them when the first ones have used up the time. */
	struct pipeline *p = parse("[[\"RandomHorizontalFlip\",0],[\"Resize\",[2500,2500]],[\"AugMix\","
				   "{\"mixture_width\":6,\"chain_depth\":6,\"interpolation\":\"bicubic\"}]]");
	struct image image = { calloc(2500 * 2500, 3), 2500 * 3, 2500, 2500 };
	uint8_t *row = malloc(pipeline_row_bytes(p));
	uint64_t whole_ns = time_of(p, &image, row, 0, 0);

	uint64_t limited_ns = time_of(p, &image, row, 1000000, IMAGE_E_TIME);
	ck_assert_in_time(limited_ns < whole_ns / 2, "%llu us of %llu us", (unsigned long long)limited_ns / 1000,
			  (unsigned long long)whole_ns / 1000);
	free(row);
	free(image.rgb);
	pipeline_destroy(p);
}
END_TEST

START_TEST(test_ops_on_numbers_end_when_their_time_is_over)
{
	/* Noise on every number of a large image, many times. */
	enum { N = 12 };
	char text[1024] = "[[\"Resize\",[2000,2000]],\"ToTensor\"";
	struct image image = { calloc(2000 * 2000, 3), 2000 * 3, 2000, 2000 };

	for (int i = 0; i < N; i++)
		strcat(text, ",[\"RandomErasing\",1,[0.9,0.9],[1,1],\"random\"]");
	strcat(text, "]");
	struct pipeline_error err;
	struct pipeline *p;

	ck_assert_msg(pipeline_parse(text, DTYPE_FLOAT32, LAYOUT_NCHW, &p, &err) == 0, "%s", err.text);
	void *row = malloc(pipeline_row_bytes(p));
	uint64_t whole_ns = time_of(p, &image, row, 0, 0);

	uint64_t limited_ns = time_of(p, &image, row, 1000000, IMAGE_E_TIME);
	ck_assert_in_time(limited_ns < whole_ns / 2, "%llu us of %llu us", (unsigned long long)limited_ns / 1000,
			  (unsigned long long)whole_ns / 1000);
	free(row);
	free(image.rgb);
	pipeline_destroy(p);
}
END_TEST

SUITE(nested_ops)
{
	Suite *s = suite_create("nested ops");
	TCase *c = tcase_create("nested ops");

	tcase_add_test(c, test_a_compose_gives_way_to_its_ops);
	tcase_add_test(c, test_the_canonical_text_of_containers_is_a_fixed_point);
	tcase_add_test(c, test_the_prefix_ends_before_a_container);
	tcase_add_test(c, test_every_way_through_a_container_must_give_one_size);
	tcase_add_test(c, test_mistakes_inside_are_named_by_their_place);
	tcase_add_test(c, test_both_sides_of_the_limits_of_containers);
	tcase_add_test(c, test_every_place_in_the_key_has_numbers_of_its_own);
	tcase_add_test(c, test_a_fork_does_not_end);
	tcase_add_test(c, test_units_are_uniform);
	tcase_add_test(c, test_noise_is_a_forks_normal_numbers);
	tcase_add_test(c, test_noise_is_filled_in_as_it_comes_one_by_one);
	suite_add_tcase(s, c);
	TCase *timing = suite_timing();
	tcase_add_test(timing, test_a_policy_ends_when_its_time_is_over);
	tcase_add_test(timing, test_ops_on_numbers_end_when_their_time_is_over);
	suite_add_tcase(s, timing);
	return s;
}
