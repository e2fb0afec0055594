/* Data sets' texts taken apart and put together, what is equal, and what the check of the message lets through. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sources.h"
#include "support/sources-text.h"
#include "support/suite.h"

static void expect_printed(const char *text, enum source_form form, const char *wanted)
{
	char *printed = sources_print(sources_of(text), form);

	ck_assert_str_eq(printed, wanted);
	free(printed);
}

START_TEST(test_a_text_is_printed_as_it_was_written)
{
	/* Of each kind. Ids of data sets are made of exact texts, so these stay what they were. */
	static const char *const texts[] = {
		"imagefolder:/data/train",
		"files:/data/list.csv#image=path,hot=cat;dog",
		"tar:/data//train-{000..123}.tar#image=jpg;png,text=txt",
		"tar:/a//x.tar::/b//*.tar",
		"mds:/data//index.json",
		"zip://a.zip!/train/images#image=png",
		"arrow:images=/pictures,/a//*.arrow#image=picture,label=kind",
		"arrow:table=12ab,rows=34cd,#x=a",
		"npy:/a.npy,/b.npy",
		"npy:x=/a.npy,y=/b.npy",
		"npz:/a.npz#x=arr_0",
		"idx:/images,/labels",
		"cifar:/a.bin,/b.bin,version=100",
		"tokens:/a.bin,/b.idx,length=8,windows=random",
		"memory:id=77,x,y",
		"random:length=3,shape=2x2,field=a:int64,field=b:bool",
		"serve:speech",
		"blend:seed=18446744073709551615;;0.7*imagefolder:/a;;12.000000001*tar:/b//x.tar",
		"blend:npy:/a;;npy:/b",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		expect_printed(texts[i], SOURCE_EXACT, texts[i]);
}
END_TEST

START_TEST(test_messages_show_what_the_user_has_written)
{
	/* Without the mark of the folder that the client opens, and without what gives others the data. */
	expect_printed("tar:/data//train-*.tar::/b//x.tar#text=txt", SOURCE_SHOWN,
		       "tar:/data/train-*.tar::/b/x.tar#text=txt");
	expect_printed("tar://x.tar", SOURCE_SHOWN, "tar:/x.tar");
	expect_printed("memory:id=77,x,y", SOURCE_SHOWN, "memory:x,y");
	expect_printed("cifar:version=10,/a.bin", SOURCE_SHOWN, "cifar:/a.bin,version=10");
	expect_printed("blend:0.70*imagefolder:/a;;3*tar:/b//x.tar", SOURCE_SHOWN,
		       "blend:0.7*imagefolder:/a;;3*tar:/b/x.tar");
}
END_TEST

START_TEST(test_a_text_that_is_none_is_refused_with_a_reason)
{
	static const struct {
		const char *text, *why;
		int error;
	} cases[] = {
		{ "train", "train", -ENOENT },
		{ "lmdb:/x", "lmdb:/x", -ENOENT },
		{ "blend:npy:/x;;lmdb:/y", "lmdb:/y", -ENOENT },
		{ "arrow:table=1,/x.arrow", "a table in memory has no files", -EINVAL },
		{ "tokens:/a.bin,lenght=8", "no option 'lenght'; the options are: length stride", -EINVAL },
		{ "random:length=3,shape", "random: shape: expected a value after '='", -EINVAL },
		{ "blend:1*npy:/x;;npy:/y", "either every data set has a weight, or none", -EINVAL },
		{ "blend:0*npy:/x", "a weight of 0", -EINVAL },
		{ "blend:npy:/x;;", "expected a data set", -EINVAL },
		{ "blend:seed=1;;npy:/x", "it is for weights", -EINVAL },
		{ "blend:serve:x", "'serve:x' cannot be a part of a blend", -EINVAL },
		{ "blend:memory:x", "cannot be a part of a blend", -EINVAL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct Sources *all;
		char why[400];

		ck_assert_int_eq(sources_parse(cases[i].text, &all, why, sizeof(why)), cases[i].error);
		ck_assert_msg(strstr(why, cases[i].why) != NULL, "%s: %s", cases[i].text, why);
		ck_assert_ptr_null(all);
	}
}
END_TEST

START_TEST(test_copies_are_equal_and_each_member_counts)
{
	/* What tells two jobs apart: a hash, an option, a field, a weight, a part more. */
	static const char *const others[] = {
		"blend:2*arrow:rows=2,/a//x.arrow#x=a;;1*npy:/y",
		"blend:2*arrow:rows=1,/a//x.arrow#x=b;;1*npy:/y",
		"blend:3*arrow:rows=1,/a//x.arrow#x=a;;1*npy:/y",
		"blend:2*arrow:rows=1,/a//x.arrow::/b//x.arrow#x=a;;1*npy:/y",
		"blend:2*arrow:rows=1,/a//y.arrow#x=a;;1*npy:/y",
		"blend:2*arrow:rows=1,/a//x.arrow#x=a",
		"arrow:rows=1,/a//x.arrow#x=a",
	};
	const struct Sources *all = sources_of("blend:2*arrow:rows=1,/a//x.arrow#x=a;;1*npy:/y");
	struct Sources *copy = sources_copy(all);

	ck_assert(sources_are_equal(all, copy));
	sources_free(copy);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		ck_assert_msg(!sources_are_equal(all, sources_of(others[i])), "%s", others[i]);
}
END_TEST

START_TEST(test_what_this_version_does_not_know_tells_nothing_apart)
{
	/* A later client may send more: the daemon ignores it, here as well. */
	const struct Sources *all = sources_of("npy:/a,/b");
	uint8_t bytes[200];
	size_t n = sources__pack(all, bytes);
	struct Sources *later;

	memcpy(bytes + n, "\xa0\x06\x01", 3); /* field 100: 1 */
	later = sources__unpack(NULL, n + 3, bytes);
	ck_assert_ptr_nonnull(later);
	ck_assert_uint_eq(later->base.n_unknown_fields, 1);
	ck_assert(sources_are_equal(all, later));
	sources_free(later);
}
END_TEST

START_TEST(test_descriptors_are_counted_and_those_of_memory_are_told)
{
	/* Two for a list and for Megatron's index; memory with a hash tells itself what it is, a file and other
	 * memory do not. */
	bool told[8] = { false };

	ck_assert_uint_eq(sources_n_fds(sources_of("files:/a")), 2);
	ck_assert_uint_eq(sources_n_fds(sources_of("tokens:/a.bin,/b.idx,length=8")), 3);
	ck_assert_uint_eq(sources_n_fds(sources_of("random:length=3")), 0);
	ck_assert_uint_eq(sources_n_fds(sources_of("serve:x")), 0);
	ck_assert_uint_eq(sources_n_fds(sources_of("train")), 0);
	ck_assert_uint_eq(sources_n_fds(sources_of("blend:files:/a;;arrow:images=/p,rows=1,/d//x.arrow")), 4);
	sources_told(sources_of("blend:files:/a;;arrow:rows=1,images=/p,/d//x.arrow;;npy:/x"), told);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_msg(told[i] == (i == 4), "descriptor %u", i);
	sources_told(sources_of("memory:id=1,x,y"), told);
	ck_assert(told[0] && told[1]);
	sources_told(sources_of("memory:x,y"), told);
	ck_assert(!told[0] && !told[1]);
}
END_TEST

static const char *check_of(const char *text)
{
	return sources_check(sources_of(text));
}

START_TEST(test_a_message_that_no_parser_makes_is_refused)
{
	/* Of another process. What a configuration may have, such as relative paths and folders without a pattern, a
	 * client has resolved. */
	struct Sources *all = sources_copy(sources_of("arrow:images=/p,/a//x.arrow"));
	struct SourcePart *first;
	Sources none = SOURCES__INIT;

	ck_assert_ptr_nonnull(sources_check(&none));
	ck_assert_ptr_null(sources_check(all));
	ck_assert_ptr_null(check_of("train"));
	ck_assert_ptr_null(check_of("random:length=3"));
	ck_assert_ptr_null(check_of("blend:1*imagefolder:/a;;2*random:length=3"));
	ck_assert_str_eq(check_of("imagefolder:a"), "SourcePart.path is not absolute");
	ck_assert_str_eq(check_of("tar:/data"), "SourcePart.pattern is there without shards, or the other way round");
	first = all->source[0]->part[0];
	all->source[0]->part[0] = all->source[0]->part[1];
	all->source[0]->part[1] = first;
	ck_assert_str_eq(sources_check(all), "SourcePart.role does not belong where it is");
	all->source[0]->part[0]->role = SOURCE_ROLE__TABLE;
	ck_assert_ptr_nonnull(sources_check(all));
	all->source[0]->kind = SOURCE_KIND__NPY;
	ck_assert_ptr_nonnull(sources_check(all));
	all->source[0]->kind = SOURCE_KIND__BLEND;
	ck_assert_ptr_nonnull(sources_check(all));
	sources_free(all);
	all = sources_copy(sources_of("cifar:/a.bin,version=10"));
	ck_assert_ptr_null(sources_check(all));
	ck_assert_int_eq(source_set(&all->source[0]->option[0]->name, "versions"), 0);
	ck_assert_str_eq(sources_check(all), "Source.option has one that its kind does not have");
	ck_assert_int_eq(source_set(&all->name, "train"), 0);
	ck_assert_str_eq(sources_check(all), "Sources has a name and data besides");
	sources_free(all);
	all = sources_copy(sources_of("blend:1*npy:/a;;2*npy:/b"));
	all->source[1]->weight = 0;
	ck_assert_str_eq(sources_check(all), "Sources has weights for some");
	all->source[1]->kind = SOURCE_KIND__SERVE;
	ck_assert_ptr_nonnull(sources_check(all));
	sources_free(all);
}
END_TEST

SUITE(sources)
{
	TCase *t = tcase_create("sources");
	Suite *s = suite_create("sources");

	tcase_add_test(t, test_a_text_is_printed_as_it_was_written);
	tcase_add_test(t, test_messages_show_what_the_user_has_written);
	tcase_add_test(t, test_a_text_that_is_none_is_refused_with_a_reason);
	tcase_add_test(t, test_copies_are_equal_and_each_member_counts);
	tcase_add_test(t, test_what_this_version_does_not_know_tells_nothing_apart);
	tcase_add_test(t, test_descriptors_are_counted_and_those_of_memory_are_told);
	tcase_add_test(t, test_a_message_that_no_parser_makes_is_refused);
	suite_add_tcase(s, t);
	return s;
}
