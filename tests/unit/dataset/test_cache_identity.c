/* Cached data belongs to the bytes, the folder and the user that it came from, and to no others. */
#include <fcntl.h>

#include "support/jpegs.h"

#include "batch/sample.h"
#include "dataset/cache/sample-cache.h"
#include "support/datasets.h"
#include "image/formats/decode.h"
#include "image/transform/pipeline.h"
#include "image/jpeg/scan.h"

enum { SIDE = 256 };

/* A grey JPEG of one level. Levels whose DC terms have equally many bits give files of one size that differ in a few
 * bits of their first block, so that each decoder state of one file is a valid place in the other. */
static uint8_t *flat_jpeg(uint8_t level, size_t *n)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;
	unsigned char *bytes = NULL, row[SIDE];
	unsigned long size = 0;
	JSAMPROW p = row;

	memset(row, level, sizeof(row));
	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &bytes, &size);
	c.image_width = c.image_height = SIDE;
	c.input_components = 1;
	c.in_color_space = JCS_GRAYSCALE;
	jpeg_set_defaults(&c);
	jpeg_set_quality(&c, 50, TRUE);
	jpeg_start_compress(&c, TRUE);
	for (unsigned y = 0; y < SIDE; y++) {
		jpeg_write_scanlines(&c, &p, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	*n = size;
	return bytes;
}

/* The level of the last row, decoded with `known`; *index: what was learnt; the caller frees it. */
static unsigned last_level(const uint8_t *bytes, size_t n, const void *known, size_t n_known, void **index,
			   size_t *n_index)
{
	struct decoder *d = decoder_create(&decode_limits_default);
	struct region_px want = { 0, SIDE - 1, SIDE, 1 };
	struct image_error err;
	struct image_info info;
	struct image out;
	const void *learnt;
	unsigned level;

	ck_assert_int_eq(decoder_open(d, bytes, n, false, &info, &err), 0);
	decoder_want_index(d, known, n_known, INDEX_LARGE);
	ck_assert_int_eq(decoder_region(d, want, &out, &err), 0);
	level = out.rgb[0];
	learnt = decoder_index(d, n_index);
	*index = learnt ? malloc(*n_index) : NULL;
	if (learnt) {
		memcpy(*index, learnt, *n_index);
	}
	decoder_destroy(d);
	return level;
}

START_TEST(test_an_index_of_other_bytes_changes_no_pixel)
{
	/* Proves that an index is used only for the very bytes that it was made from: a file of the same size and
	 * shape, for which each of its states is a valid place to start, decodes to its own pixels and gets an index of
	 * its own. */
	size_t n_dark, n_light, n_first, n_second;
	uint8_t *dark = flat_jpeg(100, &n_dark), *light = flat_jpeg(108, &n_light);
	void *first, *second;

	ck_assert_uint_eq(n_dark, n_light);
	ck_assert_int_ne(memcmp(dark, light, n_dark), 0);
	unsigned of_dark = last_level(dark, n_dark, NULL, 0, &first, &n_first);
	unsigned of_light = last_level(light, n_light, NULL, 0, &second, &n_second);

	ck_assert_uint_ne(of_dark, of_light);
	ck_assert(first && second);
	free(second);
	ck_assert_uint_eq(last_level(light, n_light, first, n_first, &second, &n_second), of_light);
	ck_assert_msg(second, "the foreign index was kept");
	free(second);
	ck_assert_uint_eq(last_level(dark, n_dark, first, n_first, &second, &n_second), of_dark);
	ck_assert_msg(!second, "its own index was not used");
	free(first);
	free(dark);
	free(light);
}
END_TEST

START_TEST(test_an_index_is_bound_to_the_tables_as_well)
{
	/* Proves that equal scan data with another Huffman table or restart interval counts as other data: the places
	 * in it are others. */
	struct jpeg_recipe recipe = { .width = 64, .height = 64, .n_components = 3, .h = 2, .v = 2, .quality = 80 };
	struct jpeg_in in;
	size_t n;
	uint8_t *bytes = jpeg_make(&recipe, 3, &n);

	ck_assert_int_eq(jpeg_in_open(&in, bytes, n), 0);
	const uint8_t *data = in.c.src->next_input_byte;
	size_t left = in.c.src->bytes_in_buffer;
	uint64_t id = scan_id(&in.c, data, left);

	ck_assert_uint_ne(id, 0);
	ck_assert_uint_eq(scan_id(&in.c, data, left), id);
	ck_assert_uint_ne(scan_id(&in.c, data, left - 1), id);
	UINT8 *values = in.c.ac_huff_tbl_ptrs[1]->huffval, swapped = values[0];

	values[0] = values[1];
	values[1] = swapped;
	ck_assert_uint_ne(scan_id(&in.c, data, left), id);
	values[1] = values[0];
	values[0] = swapped;
	ck_assert_uint_eq(scan_id(&in.c, data, left), id);
	in.c.restart_interval = 4;
	ck_assert_uint_ne(scan_id(&in.c, data, left), id);
	jpeg_in_close(&in);
	free(bytes);
}
END_TEST

START_TEST(test_a_pack_is_bound_to_all_that_scans_refer_to)
{
	/* Proves that equal data of a progressive picture count as other data when a table, a component's id or the
	 * first scan's header is another: the coefficients may be. */
	struct jpeg_recipe recipe = {
		.width = 64, .height = 64, .n_components = 3, .h = 2, .v = 2, .quality = 80, .progressive = true
	};
	struct jpeg_in in;
	size_t n;
	uint8_t *bytes = jpeg_make(&recipe, 3, &n);

	ck_assert_int_eq(jpeg_in_open(&in, bytes, n), 0);
	const uint8_t *data = in.c.src->next_input_byte;
	size_t left = in.c.src->bytes_in_buffer;
	uint64_t id = scan_progressive_id(&in.c, data, left);

	ck_assert_uint_ne(id, 0);
	ck_assert_uint_eq(scan_id(&in.c, data, left), 0);
	ck_assert_uint_ne(scan_progressive_id(&in.c, data, left - 1), id);
	in.c.comp_info[1].component_id++;
	ck_assert_uint_ne(scan_progressive_id(&in.c, data, left), id);
	in.c.comp_info[1].component_id--;
	in.c.cur_comp_info[0]->dc_tbl_no ^= 1;
	ck_assert_uint_ne(scan_progressive_id(&in.c, data, left), id);
	in.c.cur_comp_info[0]->dc_tbl_no ^= 1;
	in.c.dc_huff_tbl_ptrs[0]->huffval[0] ^= 1;
	ck_assert_uint_ne(scan_progressive_id(&in.c, data, left), id);
	in.c.dc_huff_tbl_ptrs[0]->huffval[0] ^= 1;
	in.c.Al ^= 1;
	ck_assert_uint_ne(scan_progressive_id(&in.c, data, left), id);
	in.c.Al ^= 1;
	ck_assert_uint_eq(scan_progressive_id(&in.c, data, left), id);
	jpeg_in_close(&in);
	free(bytes);
}
END_TEST

START_TEST(test_an_index_of_another_device_is_a_miss)
{
	/* Proves that two files with the same inode, time and size on two devices are two files. */
	struct cache_config config = { .budget_bytes = { 1 << 20, 1 << 20 } };
	struct file_bytes here = { .n_bytes = 5, .mtime_ns = 6, .ino = 7, .dev = 8 }, there = here;
	struct cache_space *s;
	struct cache_hit hit;
	struct cache *c;

	there.dev = 9;
	ck_assert_int_eq(cache_create(&config, &c), 0);
	s = cache_attach(c, 1, 10, CACHE_CHECKPOINTS, 0, 1);
	ck_assert_int_eq(cache_put_index(s, 3, &here, "states", 6), 0);
	ck_assert(cache_lookup_for(s, 3, &here, &hit));
	cache_release(&hit);
	ck_assert(!cache_lookup_for(s, 3, &there, &hit));
	cache_detach(s, 1);
	cache_destroy(c);
}
END_TEST

START_TEST(test_another_change_time_is_another_file)
{
	/* Proves that a file whose mtime was restored, as tar and cp -p do, is a miss in every tier. */
	struct cache_config config = { .budget_bytes = { 1 << 20, 1 << 20 } };
	uint8_t bytes[5 + 64] = { 0 };
	struct file_bytes old = { bytes, .n_bytes = 5, .mtime_ns = 6, .ctime_ns = 7, .ino = 8, .dev = 9 }, new = old;
	struct cache *c;

	new.ctime_ns++;
	ck_assert_int_eq(cache_create(&config, &c), 0);
	for (enum cache_tier tier = 0; tier < CACHE_N_TIERS; tier++) {
		struct cache_space *s = cache_attach(c, 1, 10, tier, 0, 1);
		struct cache_pixels image = { bytes, 3, 1, 1 };
		struct cache_hit hit;

		ck_assert_int_eq(tier == CACHE_DECODED ? cache_put_pixels(s, 3, &old, &image, 3)
						       : cache_put_index(s, 3, &old, "states", 6),
				 0);
		ck_assert(cache_lookup_for(s, 3, &old, &hit));
		ck_assert_uint_eq(hit.file.ctime_ns, 7);
		cache_release(&hit);
		ck_assert(!cache_lookup_for(s, 3, &new, &hit));
		cache_detach(s, 1);
	}
	cache_destroy(c);
}
END_TEST

/* ---- which users share a space ---- */

static struct cache *cache;

static struct recipe attach(const struct data_access *access, const char *said, const char *folder)
{
	struct recipe r = { 0 };
	int fd = open(folder, O_RDONLY | O_DIRECTORY);

	ck_assert_int_ge(fd, 0);
	ck_assert_msg(open_as(access, "imagefolder", said, NULL, &fd, 1, &r.dataset) == 0, "%s", f.err.text);
	close(fd);
	ck_assert_int_eq(recipe_attach(&r, cache, 0, false, &decode_limits_default), 0);
	ck_assert_ptr_nonnull(r.indexes);
	return r;
}

START_TEST(test_users_share_no_cache_unless_they_are_trusted)
{
	/* Proves that cached data of a user's files is found again by that user and by no other, whatever path the
	 * other names; all trusted users share, as the trainers of a configured data set do. */
	struct cache_config config = { .budget_bytes = { 1 << 20, 1 << 20 } };
	struct data_access a = { .uid = 1234, .gids = { getgid() }, .n_gids = 1 }, b = a, root = f.trusted;
	char pets[96];

	make_pets();
	snprintf(pets, sizeof(pets), "%s/pets", f.root);
	b.uid = 1235;
	root.uid = 0;
	ck_assert_int_eq(cache_create(&config, &cache), 0);
	struct recipe of_a = attach(&a, "/data/pets", pets), again = attach(&a, "/data/pets", pets),
		      of_b = attach(&b, "/data/pets", pets), of_us = attach(&f.trusted, "/data/pets", pets),
		      of_root = attach(&root, "/data/pets", pets);

	ck_assert_ptr_eq(of_a.indexes, again.indexes);
	ck_assert_ptr_ne(of_a.indexes, of_b.indexes);
	ck_assert_ptr_ne(of_a.indexes, of_us.indexes);
	ck_assert_ptr_eq(of_us.indexes, of_root.indexes);
	ck_assert_uint_eq(dataset_id(of_a.dataset), dataset_id(of_b.dataset));
	recipe_finish(&of_a);
	recipe_finish(&again);
	recipe_finish(&of_b);
	recipe_finish(&of_us);
	recipe_finish(&of_root);
	cache_destroy(cache);
}
END_TEST

START_TEST(test_folders_that_are_called_the_same_share_no_cache)
{
	/* Proves that two folders of one user with equal names below one claimed path (two containers' /data) are two
	 * data sets to the cache. */
	struct cache_config config = { .budget_bytes = { 1 << 20, 1 << 20 } };
	struct data_access a = { .uid = 1234 };

	make_dir("one", 0755);
	make_dir("one/cat", 0755);
	put("one/cat/a.jpg", "first");
	make_dir("two", 0755);
	make_dir("two/cat", 0755);
	put("two/cat/a.jpg", "other");
	ck_assert_int_eq(cache_create(&config, &cache), 0);
	struct recipe one = attach(&a, "/data", in_root("one")), two = attach(&a, "/data", in_root("two")),
		      again = attach(&a, "/data", in_root("one"));

	ck_assert_uint_eq(dataset_id(one.dataset), dataset_id(two.dataset));
	ck_assert_ptr_ne(one.indexes, two.indexes);
	ck_assert_ptr_eq(one.indexes, again.indexes);
	recipe_finish(&one);
	recipe_finish(&two);
	recipe_finish(&again);
	cache_destroy(cache);
}
END_TEST

START_TEST(test_a_kept_listing_is_its_users_own)
{
	/* Proves that the name of a folder's kept index depends on its user, too. */
	struct data_access a = { .uid = 1234 }, b = { .uid = 1235 };
	char pets[96];
	struct dataset *ds;
	DIR *d;
	unsigned n = 0;

	make_pets();
	snprintf(pets, sizeof(pets), "%s/pets", f.root);
	make_dir("kept", 0700);
	settle();
	for (int i = 0; i < 4; i++) {
		int fd = open_dir("pets");

		ck_assert_int_eq(open_as(i % 2 ? &a : &b, "imagefolder", pets, in_root("kept"), &fd, 1, &ds), 0);
		dataset_unref(ds);
		close(fd);
	}
	d = opendir(in_root("kept"));
	for (struct dirent *e; (e = readdir(d));) {
		n += strstr(e->d_name, ".index") != NULL;
	}
	closedir(d);
	ck_assert_uint_eq(n, 2);
}
END_TEST

SUITE(cache_identity)
{
	Suite *s = suite_create("cache identity");
	TCase *bytes = tcase_create("bytes"), *users = tcase_create("users");

	tcase_add_test(bytes, test_an_index_of_other_bytes_changes_no_pixel);
	tcase_add_test(bytes, test_an_index_is_bound_to_the_tables_as_well);
	tcase_add_test(bytes, test_a_pack_is_bound_to_all_that_scans_refer_to);
	tcase_add_test(bytes, test_an_index_of_another_device_is_a_miss);
	tcase_add_test(bytes, test_another_change_time_is_another_file);
	suite_add_tcase(s, bytes);
	tcase_add_checked_fixture(users, set_up, tear_down);
	tcase_add_test(users, test_users_share_no_cache_unless_they_are_trusted);
	tcase_add_test(users, test_folders_that_are_called_the_same_share_no_cache);
	tcase_add_test(users, test_a_kept_listing_is_its_users_own);
	suite_add_tcase(s, users);
	return s;
}
