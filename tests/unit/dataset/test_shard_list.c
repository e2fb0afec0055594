/* Lists of shards: which paths are below the list's folder. What else a list may be is tested with the wids package
 * (tests/system/dataset/test_tar_index.py) and fuzzed. */
#include <errno.h>
#include <string.h>

#include "dataset/shards/list.h"
#include "support/suite.h"

static int note_path(void *arg, const struct listed_file *files, unsigned n)
{
	ck_assert_uint_eq(n, 1);
	snprintf(arg, 64, "%s", files->path);
	return 0;
}

/* The path that a list in the folder names by this URL; NULL: it is refused. */
static const char *path_of(const char *folder, const char *url)
{
	static char path[64];
	struct dataset_error err = { .text = "" };
	char text[160];
	int r;

	snprintf(text, sizeof(text), "{\"shardlist\": [{\"url\": \"%s\"}]}", url);
	r = shard_list_parse("index.json", folder, text, strlen(text), note_path, path, &err);
	ck_assert_msg(r == 0 || (r == -EINVAL && strstr(err.text, url)), "%s", err.text);
	return r ? NULL : path;
}

START_TEST(test_whole_paths_lie_below_the_folder)
{
	ck_assert_str_eq(path_of("/data", "/data/a.tar"), "a.tar");
	ck_assert_str_eq(path_of("/data/", "file:///data/b/a.tar"), "b/a.tar");
	ck_assert_ptr_null(path_of("/data", "/database/a.tar"));
	ck_assert_ptr_null(path_of("/data", "/data"));
	ck_assert_ptr_null(path_of("/data", "/data/../a.tar"));
}
END_TEST

START_TEST(test_every_whole_path_lies_below_the_root)
{
	/* The folder of a container whose data are mounted at its root. */
	ck_assert_str_eq(path_of("/", "/a.tar"), "a.tar");
	ck_assert_str_eq(path_of("/", "file:///data/a.tar"), "data/a.tar");
	ck_assert_str_eq(path_of("/", "a.tar"), "a.tar");
	ck_assert_ptr_null(path_of("/", "/../a.tar"));
	ck_assert_ptr_null(path_of("/", "/"));
}
END_TEST

SUITE(shard_list)
{
	Suite *s = suite_create("shard_list");
	TCase *t = tcase_create("shard_list");

	tcase_add_test(t, test_whole_paths_lie_below_the_folder);
	tcase_add_test(t, test_every_whole_path_lies_below_the_root);
	suite_add_tcase(s, t);
	return s;
}
