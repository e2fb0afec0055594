/* timm's texts in pipelines: the ops they stand for, what they take from the other ops, and what is refused.
 * (tests/python/test_timm_policies.py compares them with timm.) */
#include "pipeline/pipeline.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipelines.h"
#include "suite.h"

static struct pipeline *parse(const char *text)
{
	enum dtype dtype = strstr(text, "ToTensor") ? DTYPE_FLOAT32 : DTYPE_UINT8;
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;

	ck_assert_msg(pipeline_parse(text, dtype, LAYOUT_NHWC, &p, &err) == 0, "%s: %s", text, err.text);
	return p;
}

static void expect_words(const char *text, const char *words)
{
	struct pipeline *p = parse(text);

	ck_assert_msg(strstr(pipeline_text(p), words) != NULL, "%s gives %s, without %s", text, pipeline_text(p),
		      words);
	pipeline_destroy(p);
}

static void expect_same(const char *text, const char *same)
{
	struct pipeline *a = parse(text), *b = parse(same);

	ck_assert_str_eq(pipeline_text(a), pipeline_text(b));
	pipeline_destroy(a);
	pipeline_destroy(b);
}

START_TEST(test_numbers_are_read_as_timm_reads_them)
{
	/* Of sections that come twice the last one counts, of mstd and mmax the first; what is not given is timm's. */
	expect_same("[[\"CenterCrop\",64],\"rand\"]", "[[\"CenterCrop\",64],\"rand-m10-n2-p0.5-inc0\"]");
	expect_same("[[\"CenterCrop\",64],\"rand-m3-m9-mstd0.5-mstd7-mmax20-mmax3\"]",
		    "[[\"CenterCrop\",64],\"rand-mstd0.5-mmax20-m9\"]");
	expect_words("[[\"CenterCrop\",64],\"rand-p0.7-m9\"]", "[\"AutoContrast\",0.69999999999999996,9.0]");
	expect_words("[[\"CenterCrop\",64],\"rand-mstd101\"]", "\"magnitude_std\":\"uniform\"");
	expect_words("[[\"CenterCrop\",64],\"augmix\"]", "\"magnitude_std\":\"uniform\"");
	expect_words("[[\"CenterCrop\",64],\"v0-mstd0.5\"]", "\"magnitude_std\":0.5");
	expect_same("[[\"CenterCrop\",64],\"rand-tnothing-inc1\"]", "[[\"CenterCrop\",64],\"rand-inc1\"]");
}
END_TEST

START_TEST(test_the_other_ops_give_size_mean_and_filter)
{
	/* By name and by position, before and behind the text, and among the ops that views share. */
	expect_words("[[\"RandomResizedCrop\",[90,60],[0.1,1],[0.7,1.3],\"bicubic\"],\"v0\","
		     "\"ToTensor\",[\"Normalize\",[0,0.5,1],[1,1,1]]]",
		     "\"fill\":[0,128,255],\"interpolation\":\"bicubic\",\"magnitude_std\":0.0,\"magnitude_max\":10.0,"
		     "\"translate_const\":27.0");
	expect_words(
		"[[\"Resize\",{\"size\":80,\"interpolation\":\"bicubic\"}],[\"CenterCrop\",{\"size\":70}],\"rand\"]",
		"\"fill\":[124,116,104],\"interpolation\":\"bicubic\",\"magnitude_std\":0.0,\"magnitude_max\":10.0,"
		"\"translate_const\":31.0");
	expect_words(
		"[[\"SharedByViews\",[[\"RandomResizedCrop\",{\"size\":40,\"interpolation\":\"random\"}]]],\"augmix\"]",
		"\"interpolation\":\"random\",\"magnitude_std\":\"uniform\",\"magnitude_max\":10.0,"
		"\"translate_const\":18.0,\"translate_pct\":0.29999999999999999");
}
END_TEST

START_TEST(test_texts_stand_inside_containers)
{
	struct pipeline *p = parse("[[\"CenterCrop\",8],[\"RandomApply\",[\"rand-m9\"],0.5],"
				   "[\"RandomChoice\",[\"3a\",\"Identity\"]]]");

	ck_assert_ptr_nonnull(strstr(pipeline_text(p), "TimmRandAugment"));
	ck_assert_ptr_nonnull(strstr(pipeline_text(p), "TimmAutoAugment"));
	pipeline_destroy(p);
	expect_same("[[\"CenterCrop\",8],[\"original\"]]", "[[\"CenterCrop\",8],\"original\"]");
}
END_TEST

START_TEST(test_a_filter_that_no_change_uses_is_not_refused)
{
	/* 3a moves no pixels; the others do, which Pillow does with three filters. */
	expect_same(
		"[[\"RandomResizedCrop\",{\"size\":8,\"interpolation\":\"lanczos\"}],\"3a\"]",
		"[[\"RandomResizedCrop\",{\"size\":8,\"interpolation\":\"lanczos\"}],[\"TimmAutoAugment\",{\"policy\":"
		"[[[\"Solarize\",1,5]],[[\"Desaturate\",1,10]],[[\"GaussianBlurRand\",1,10]]],"
		"\"fill\":[124,116,104],\"interpolation\":\"bilinear\",\"translate_const\":3}]]");
	expect_words("[[\"RandomResizedCrop\",{\"size\":8,\"interpolation\":\"box\"}],\"rand-t3a\"]",
		     "TimmRandAugment");
	expect_refusal("[[\"RandomResizedCrop\",{\"size\":8,\"interpolation\":\"lanczos\"}],\"v0\"]",
		       "op 2 'TimmAutoAugment'|interpolation|lanczos|bilinear");
}
END_TEST

START_TEST(test_what_timm_does_not_know_is_refused_by_name)
{
	expect_refusal("[\"rand-m9-foo\"]", "op 1|rand-m9-foo|'foo' is not known|m, n, p, mstd, mmax, inc and t");
	expect_refusal("[\"rand-m9.5\"]", "'m9.5' wants a whole number");
	expect_refusal("[\"rand-mstd0.5.5\"]", "'mstd0.5.5' wants a number");
	expect_refusal("[\"rand-m9-\"]", "'' is not known");
	expect_refusal("[\"rand-w4\"]", "'w4' is not known");
	expect_refusal("[\"augmix-n2\"]", "'n2' is not known|m, w, d, a, b and mstd");
	expect_refusal("[\"original-m9\"]", "'m9' is not known; 'original' takes mstd");
	expect_refusal("[\"v0-mstd0.5-mmax9\"]", "'mmax9' is not known");
	expect_refusal("[\"rand-m1-m1-m1-m1-m1-m1-m1-m1-m1-m1-m1-m1-m1-m1-m1-m1-m1\"]", "one section too many");
	expect_refusal("[\"rand-m1234567890123456\"]", "wants a whole number");
	expect_refusal("[\"rand-m101\"]", "'TimmRandAugment'|'ops'");
	expect_refusal("[[\"CenterCrop\",8],[\"RandomApply\",[\"randy\"]]]", "op 2.1|randy");
	expect_refusal("[[\"rand\",9]]", "op 1|'rand'");
	expect_refusal("rand-m9-inc1", "'rand-m9-inc1' is one op of a pipeline: put it into a list");
}
END_TEST

START_TEST(test_a_pipeline_has_few_texts)
{
	/* Each is a policy of hundreds of bytes in words: a client's short text makes no long pipeline. */
	struct pipeline *p = parse("[[\"CenterCrop\",8],\"v0\",\"v0\",\"v0\",\"v0\",\"v0\",\"v0\",\"v0\",\"v0\"]");

	pipeline_destroy(p);
	expect_refusal("[[\"CenterCrop\",8],\"v0\",\"v0\",\"v0\",\"v0\",[\"RandomOrder\",[\"v0\",\"v0\",\"v0\",\"v0\","
		       "\"v0\"]]]",
		       "op 6.5|one text of timm's too many: a pipeline may have 8");
}
END_TEST

SUITE(timm_text)
{
	Suite *s = suite_create("timm texts");
	TCase *c = tcase_create("timm texts");

	tcase_add_test(c, test_numbers_are_read_as_timm_reads_them);
	tcase_add_test(c, test_the_other_ops_give_size_mean_and_filter);
	tcase_add_test(c, test_texts_stand_inside_containers);
	tcase_add_test(c, test_a_filter_that_no_change_uses_is_not_refused);
	tcase_add_test(c, test_what_timm_does_not_know_is_refused_by_name);
	tcase_add_test(c, test_a_pipeline_has_few_texts);
	suite_add_tcase(s, c);
	return s;
}
