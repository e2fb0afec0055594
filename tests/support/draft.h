/* The scan decoder at a fraction of the size against libjpeg with the same scale_denom, for tests and fuzzers. */
#ifndef BATCHD_TESTS_DRAFT_H
#define BATCHD_TESTS_DRAFT_H

#include "image/jpeg/scan.h"
#include "jpegs.h"

enum draft_verdict { DRAFT_EQUAL, DRAFT_UNSURE, DRAFT_FAILED };

static inline int draft_decode(struct scan *s, const struct jpeg_in *in, struct region_px want, uint8_t *rgb)
{
	const uint8_t *data = in->c.src->next_input_byte;
	size_t n = in->c.src->bytes_in_buffer;
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };
	struct cpu_budget budget;

	cpu_budget_begin(&budget, 0);
	if (scan_supported_progressive(&in->c))
		return scan_progressive_region(s, &in->c, data, n, 100, &budget, false, want, &out);
	return scan_region(s, &in->c, data, n, 0, NULL, NULL, want, &out);
}

static inline bool draft_part_is_equal(struct scan *s, const struct jpeg_in *in, const uint8_t *whole, uint32_t width,
				       struct region_px want, uint8_t *rgb)
{
	if (draft_decode(s, in, want, rgb) != 0)
		return false;
	for (uint32_t y = 0; y < want.height; y++)
		if (memcmp(rgb + (size_t)y * want.width * 3, whole + ((size_t)(want.y + y) * width + want.x) * 3,
			   (size_t)want.width * 3) != 0)
			return false;
	return true;
}

/* Decodes all of it and some parts at 1 / times by each path. what: of a failure. */
static inline enum draft_verdict draft_check(struct scan *s, const uint8_t *bytes, size_t n, uint32_t times,
					     uint32_t seed, const char **what)
{
	enum draft_verdict verdict = DRAFT_FAILED;
	struct jpeg_in in = { 0 }, reference = { 0 };
	uint8_t *theirs = NULL, *ours = NULL;
	int sure = 0;

	*what = "the header cannot be read";
	if (jpeg_in_open(&in, bytes, n) != 0 || jpeg_in_open(&reference, bytes, n) != 0)
		goto out;
	reference.c.scale_num = 1;
	reference.c.scale_denom = times;
	const uint32_t width = (in.c.image_width + times - 1) / times, height = (in.c.image_height + times - 1) / times;
	const struct region_px all = { 0, 0, width, height };
	theirs = malloc((size_t)width * height * 3 + 1);
	ours = malloc((size_t)width * height * 3);
	scan_shrink(s, times);
	for (const char *const *path = scan_paths(); *path; path++) {
		scan_set_path(s, *path);
		int r = draft_decode(s, &in, all, ours);

		*what = "paths disagree whether they are sure";
		if (path != scan_paths() && r != sure)
			goto out;
		sure = r;
		*what = "libjpeg fails or gives pixels of another size";
		if (sure == 0 && path == scan_paths() &&
		    (jpeg_in_pixels(&reference, theirs) != 0 || reference.c.output_width != width ||
		     reference.c.output_height != height))
			goto out;
		*what = "libjpeg gives other pixels";
		if (sure == 0 && memcmp(ours, theirs, (size_t)width * height * 3) != 0)
			goto out;
		*what = "a rectangle differs from the whole";
		for (int i = 0; sure == 0 && i < 3; i++) {
			uint32_t x = jpeg_random(&seed) % width, y = jpeg_random(&seed) % height;
			struct region_px want = { x, y, 1 + jpeg_random(&seed) % (width - x),
						  1 + jpeg_random(&seed) % (height - y) };

			if (!draft_part_is_equal(s, &in, theirs, width, want, ours))
				goto out;
		}
	}
	verdict = sure == 0 ? DRAFT_EQUAL : DRAFT_UNSURE;
out:
	scan_shrink(s, 1);
	if (in.c.err)
		jpeg_in_close(&in);
	if (reference.c.err)
		jpeg_in_close(&reference);
	free(theirs);
	free(ours);
	return verdict;
}

#endif
