/* Memory that runs out while a configuration is read: of all allocations the n-th fails, for every n. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "support/suite.h"

static long countdown; /* calls until one fails; 0 and below: none does */

static bool refuses(void)
{
	return countdown > 0 && --countdown == 0;
}

/* The linker's --wrap counts the calls of our own objects (see the Makefile). */
#define WRAP(name, parameters, arguments) \
	void *__real_##name parameters; \
	void *__wrap_##name parameters; \
	void *__wrap_##name parameters \
	{ \
		return refuses() ? NULL : __real_##name arguments; \
	}
WRAP(malloc, (size_t n), (n))
WRAP(calloc, (size_t n, size_t size), (n, size))
WRAP(reallocarray, (void *p, size_t n, size_t size), (p, n, size))
WRAP(strdup, (const char *text), (text))

static const char yaml[] = "socket: /run/x\n"
			   "cache: {jpeg: off, directory: /var/c}\n"
			   "limits:\n"
			   "  sessions: 11\n"
			   "pipelines:\n"
			   "- name: small\n"
			   "  transform: [[Resize, 128], [CenterCrop, {size: 112}], ToTensor]\n"
			   "- {name: json, transform: '[[\"RandomResizedCrop\", 64], \"ToTensor\"]'}\n"
			   "datasets:\n"
			   "- name: train\n"
			   "  source: imagefolder:/data/train\n"
			   "  transform: small\n"
			   "  users: [root, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n"
			   "  groups: [root]\n"
			   "- {name: points, source: 'npy:/data/x.npy'}\n";

START_TEST(test_a_configuration_is_read_whole_or_not_at_all)
{
	/* Proves that no failed allocation is overlooked or leaves anything behind (the sanitizers look for that), and
	 * that reading reports it as what it is. */
	struct config_error err = { .text = "" };
	struct config c;
	long n = 0;
	int e;

	do {
		countdown = ++n;
		e = config_parse("c.yaml", yaml, sizeof yaml - 1, &c, &err);
		if (e < 0) {
			ck_assert_int_eq(e, -ENOMEM);
			ck_assert_uint_eq(c.n_datasets + c.n_pipelines, 0);
			ck_assert_ptr_null(c.socket);
		}
	} while (e < 0);
	ck_assert_int_eq(countdown, 1); /* the first n that no call reached */
	ck_assert_int_gt(n, 40);
	ck_assert_str_eq(c.socket, "/run/x");
	ck_assert_uint_eq(c.n_pipelines, 2);
	ck_assert_uint_eq(config_dataset(&c, "train")->n_users, 11);
	config_finish(&c);
}
END_TEST

SUITE(config_shortage)
{
	Suite *suite = suite_create("config_shortage");
	TCase *tc = tcase_create("config_shortage");

	tcase_add_test(tc, test_a_configuration_is_read_whole_or_not_at_all);
	suite_add_tcase(suite, tc);

	return suite;
}
