/* The scan decoder on damaged JPEGs: no crash, and where it is sure of the whole image, libjpeg gives the same pixels.
 *
 * Random bytes seldom make a valid header, so most inputs are a few changes to one of several JPEGs made at the start:
 * byte 0 odd, then which JPEG, then (offset, value) of three bytes each. Byte 0 even: the rest is the file. Every path
 * of the processor is run, and with a forged index too. */
#include "support/draft.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_MADE = 36, N_BASELINE = 24, MAX_PX = 1 << 14, MAX_SCANS = 20 };

static struct made {
	uint8_t *bytes;
	size_t n;
} made[N_MADE];
static struct scan *scan;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	scan = scan_create();
	for (unsigned i = 0; i < N_MADE; i++) {
		struct jpeg_recipe r = {
			.width = 9 + i * 5 % 60,
			.height = 6 + i * 7 % 40,
			.n_components = i % 8 == 7 ? 1 : 3,
			.rgb = i == 4,
			.h = i == 4 ? 1 : 1 + (int)(i & 1),
			.v = i == 4 ? 1 : 1 + (int)(i >> 1 & 1),
			.quality = i % 5 ? (int)(20 + i * 3) : 100,
			.optimize = i % 3 == 0,
			.restart = i % 4 == 1 ? 1 + i % 5 : 0,
			.noise = i * 11 % 256,
			.progressive = i >= N_BASELINE,
		};

		made[i].bytes = jpeg_make(&r, i + 1, &made[i].n);
	}
	return 0;
}

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_scan: %s\n", what);
	abort();
}

/* Bytes in an allocation of exactly their size; the caller frees them. */
static uint8_t *file_of(const uint8_t *data, size_t size, size_t *n)
{
	const struct made *m = size > 1 ? &made[data[1] % N_MADE] : &made[0];
	uint8_t *bytes;

	if (size == 0 || data[0] % 2 == 0) {
		*n = size ? size - 1 : 0;
		bytes = malloc(*n + 1);
		if (*n)
			memcpy(bytes, data + 1, *n);
		return bytes;
	}
	*n = m->n;
	bytes = malloc(m->n);
	memcpy(bytes, m->bytes, m->n);
	for (size_t i = 2; i + 3 <= size; i += 3)
		bytes[(data[i] | (size_t)data[i + 1] << 8) % m->n] = data[i + 2];
	return bytes;
}

static void check_pack(const struct jpeg_in *header, struct region_px want, const uint8_t *expected, uint32_t seed);

/* Decoded as a whole, to be packed: what scan_region gives, or unsure. */
static void check_whole(const struct jpeg_in *header, struct region_px want, uint32_t seed)
{
	const uint8_t *data = header->c.src->next_input_byte;
	size_t left = header->c.src->bytes_in_buffer, n = (size_t)want.width * want.height * 3;
	struct image whole = { .rgb = malloc(n), .stride_bytes = (size_t)want.width * 3 };
	struct image part = { .rgb = malloc(n), .stride_bytes = whole.stride_bytes };
	int r = scan_whole_region(scan, &header->c, data, left, want, &whole);

	check(r == 0 || r == SCAN_E_UNSURE, "not an outcome");
	if (r == 0) {
		check_pack(header, want, whole.rgb, seed);
		check(scan_region(scan, &header->c, data, left, 0, NULL, NULL, want, &part) == 0,
		      "only the whole is sure");
		check(memcmp(whole.rgb, part.rgb, n) == 0, "the whole gives other pixels");
	}
	free(whole.rgb);
	free(part.rgb);
}

static void check_image(struct jpeg_in *header, const uint8_t *bytes, size_t n, uint32_t seed)
{
	const uint8_t *data = header->c.src->next_input_byte;
	const uint32_t width = header->c.image_width, height = header->c.image_height;
	size_t left = header->c.src->bytes_in_buffer, px = (size_t)width * height,
	       index_size = checkpoints_size(&header->c, left);
	uint8_t *first = malloc(px * 3), *second = malloc(px * 3);
	struct checkpoints *index = malloc(index_size);
	struct image out = { .rgb = first, .stride_bytes = (size_t)width * 3 };
	uint64_t id = scan_id(&header->c, data, left);
	int sure = -1;

	checkpoints_init(index, &header->c, left, id);
	for (const char *const *path = scan_paths(); *path; path++) {
		check(scan_set_path(scan, *path) == 0, "no such path");
		out.rgb = sure < 0 ? first : second;
		int r = scan_region(scan, &header->c, data, left, id, NULL, index,
				    (struct region_px){ 0, 0, width, height }, &out);

		check(r == 0 || r == SCAN_E_UNSURE, "not an outcome");
		check(sure < 0 || r == sure, "paths disagree whether they are sure");
		check(sure != 0 || memcmp(first, second, px * 3) == 0, "paths disagree about pixels");
		sure = r;
	}
	if (sure == 0) {
		struct jpeg_in in;

		check(jpeg_in_open(&in, bytes, n) == 0 && jpeg_in_pixels(&in, second) == 0,
		      "libjpeg fails where we are sure");
		check(memcmp(first, second, px * 3) == 0, "libjpeg sees other pixels");
		jpeg_in_close(&in);
	}
	uint32_t x = jpeg_random(&seed) % width, y = jpeg_random(&seed) % height;
	struct region_px want = { x, y, 1 + jpeg_random(&seed) % (width - x), 1 + jpeg_random(&seed) % (height - y) };

	out.rgb = second;
	out.stride_bytes = (size_t)want.width * 3;
	if (scan_region(scan, &header->c, data, left, id, index, index, want, &out) == 0 && sure == 0)
		for (uint32_t row = 0; row < want.height; row++)
			check(memcmp(second + row * out.stride_bytes, first + ((size_t)(y + row) * width + x) * 3,
				     out.stride_bytes) == 0,
			      "a rectangle differs from the whole");
	check_whole(header, want, seed);
	for (uint64_t *state = index->states; (uint8_t *)state < (uint8_t *)index + index_size; state++)
		if (jpeg_random(&seed) % 2)
			*state = (uint64_t)jpeg_random(&seed) << 32 | jpeg_random(&seed) % ((uint32_t)left * 8 + 1);
	(void)scan_region(scan, &header->c, data, left, id, index, NULL, want, &out);
	free(index);
	free(first);
	free(second);
}

static int progressive(const struct jpeg_in *header, struct region_px want, uint8_t *rgb)
{
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };
	struct cpu_budget budget;

	cpu_budget_begin(&budget, 0);
	return scan_progressive_region(scan, &header->c, header->c.src->next_input_byte, header->c.src->bytes_in_buffer,
				       MAX_SCANS, &budget, false, want, &out);
}

/* The packed rows of the picture that was decoded last give the same rectangle; changed anywhere, they give anything. */
static void check_pack(const struct jpeg_in *header, struct region_px want, const uint8_t *expected, uint32_t seed)
{
	struct image out = { .stride_bytes = (size_t)want.width * 3 };
	struct scratch to = { 0 };
	size_t n = scan_pack(scan, 1, 1 << 20, &to), n_px = (size_t)want.width * want.height * 3;

	if (n > 0) {
		uint8_t *bytes = malloc(n); /* exactly: no room after it */
		struct block_pack *pack = (struct block_pack *)(void *)bytes;

		memcpy(bytes, to.data, n);
		out.rgb = malloc(n_px);
		check(block_pack_valid(pack, n), "a pack is not valid");
		check(scan_packed_region(scan, &header->c, pack, want, &out) == 0, "a pack does not do");
		check(memcmp(out.rgb, expected, n_px) == 0, "a pack gives other pixels");
		for (uint32_t i = 0; i < 1 + seed % 8; i++)
			bytes[sizeof(*pack) + jpeg_random(&seed) % (n - sizeof(*pack))] = (uint8_t)jpeg_random(&seed);
		if (block_pack_valid(pack, n))
			(void)scan_packed_region(scan, &header->c, pack, want, &out);
		free(out.rgb);
		free(bytes);
	}
	scratch_finish(&to);
}

static void check_progressive(const struct jpeg_in *header, const uint8_t *bytes, size_t n, uint32_t seed)
{
	const uint32_t width = header->c.image_width, height = header->c.image_height;
	uint8_t *whole = malloc((size_t)width * height * 3), *other = malloc((size_t)width * height * 3);
	uint32_t x = jpeg_random(&seed) % width, y = jpeg_random(&seed) % height;
	struct region_px want = { x, y, 1 + jpeg_random(&seed) % (width - x), 1 + jpeg_random(&seed) % (height - y) };
	int sure = -1;

	for (const char *const *path = scan_paths(); *path; path++) {
		check(scan_set_path(scan, *path) == 0, "no such path");
		int r = progressive(header, (struct region_px){ 0, 0, width, height }, sure < 0 ? whole : other);

		check(r == 0 || r == SCAN_E_UNSURE, "not an outcome");
		check(sure < 0 || r == sure, "paths disagree whether they are sure of a progressive picture");
		check(sure != 0 || memcmp(whole, other, (size_t)width * height * 3) == 0,
		      "paths disagree about pixels of a progressive picture");
		sure = r;
	}
	int part = progressive(header, want, other);
	if (part == 0)
		check_pack(header, want, other, seed);
	for (uint32_t row = 0; part == 0 && sure == 0 && row < want.height; row++)
		check(memcmp(other + (size_t)row * want.width * 3, whole + ((size_t)(y + row) * width + x) * 3,
			     (size_t)want.width * 3) == 0,
		      "a rectangle of a progressive picture differs from the whole");
	if (sure == 0) {
		struct jpeg_in in;

		check(jpeg_in_open(&in, bytes, n) == 0 && jpeg_in_pixels(&in, other) == 0,
		      "libjpeg fails where we are sure");
		check(memcmp(whole, other, (size_t)width * height * 3) == 0, "libjpeg sees other pixels");
		jpeg_in_close(&in);
	}
	free(whole);
	free(other);
}

static void check_draft(const uint8_t *bytes, size_t n, uint32_t seed)
{
	const char *what;

	if (draft_check(scan, bytes, n, 2u << seed % 3, seed, &what) == DRAFT_FAILED) {
		fprintf(stderr, "fuzz_scan: a draft: ");
		check(0, what);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jpeg_in header;
	uint32_t seed = (uint32_t)size * 2654435761u | 1;
	size_t n;
	uint8_t *bytes = file_of(data, size, &n);

	for (size_t i = 0; i < size && i < 64; i++)
		seed = (seed ^ data[i]) * 16777619u | 1;
	if (jpeg_in_open(&header, bytes, n) == 0 && (uint64_t)header.c.image_width * header.c.image_height <= MAX_PX) {
		if (scan_supported(&header.c))
			check_image(&header, bytes, n, seed);
		else if (scan_supported_progressive(&header.c))
			check_progressive(&header, bytes, n, seed);
		if (scan_supported(&header.c) || scan_supported_progressive(&header.c))
			check_draft(bytes, n, seed);
	}
	jpeg_in_close(&header);
	free(bytes);
	return 0;
}
