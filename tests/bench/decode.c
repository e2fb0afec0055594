/* The cost of decoding: libjpeg-turbo and batchd's scan decoder on the same photographs and the same random crops.
 *
 *     decode [DIR [ROUNDS [WAY]]]
 *
 *     DIR   an image folder, ../shared/data/photos if not given
 *     WAY   only that way, for a profiler
 *
 * Per image, milliseconds of CPU time, including the header: the median over rounds, in each of which every way decodes
 * all images in turn. An index of progressive pictures is a pack of their blocks; the size of packs is printed, too. */
#include <dirent.h>
#include <math.h>
#include <time.h>

#include "image/jpeg/scan.h"
#include "support/jpegs.h"

enum { MAX_FILES = 4096, MAX_ROUNDS = 50, MAX_SCANS = 100 };

struct sample {
	uint8_t *bytes;
	size_t n;
	struct region_px crop;
	struct checkpoints *index; /* complete */
	struct checkpoints *fresh; /* to record into */
	struct scratch pack;       /* whole */
	bool progressive;
};

static struct sample samples[MAX_FILES];
static unsigned n_samples;
static struct scan *scan;
static struct jpeg_in in; /* one decompressor for all ways, as in a worker */
static uint8_t *rgb;
static size_t rgb_bytes, file_bytes, pack_bytes;

/* libjpeg keeps an earlier picture's tables, and a progressive one may refer to any. */
static void forget_tables(void)
{
	for (int i = 0; i < NUM_HUFF_TBLS; i++) {
		if (in.c.dc_huff_tbl_ptrs[i])
			memset(in.c.dc_huff_tbl_ptrs[i], 0, sizeof(JHUFF_TBL));
		if (in.c.ac_huff_tbl_ptrs[i])
			memset(in.c.ac_huff_tbl_ptrs[i], 0, sizeof(JHUFF_TBL));
	}
}

static void header(const struct sample *s)
{
	jpeg_abort_decompress(&in.c);
	forget_tables();
	jpeg_mem_src(&in.c, s->bytes, (unsigned long)s->n);
	jpeg_read_header(&in.c, TRUE);
}

static void header_only(const struct sample *s)
{
	header(s);
}

static void libjpeg_full(const struct sample *s)
{
	header(s);
	in.c.out_color_space = JCS_RGB;
	jpeg_start_decompress(&in.c);
	while (in.c.output_scanline < in.c.output_height) {
		JSAMPROW row = rgb;

		jpeg_read_scanlines(&in.c, &row, 1);
	}
}

static void libjpeg_region(const struct sample *s)
{
	JDIMENSION x = s->crop.x, width = s->crop.width;

	header(s);
	in.c.out_color_space = JCS_RGB;
	jpeg_start_decompress(&in.c);
	jpeg_crop_scanline(&in.c, &x, &width);
	jpeg_skip_scanlines(&in.c, s->crop.y);
	while (in.c.output_scanline < s->crop.y + s->crop.height) {
		JSAMPROW row = rgb;

		jpeg_read_scanlines(&in.c, &row, 1);
	}
}

/* As a daemon does for each image that has an index or gets one. */
static uint64_t id_now(void)
{
	return scan_id(&in.c, in.c.src->next_input_byte, in.c.src->bytes_in_buffer);
}

static void ours(const struct sample *s, struct region_px want, const struct checkpoints *index,
		 struct checkpoints *record)
{
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };

	header(s);
	if (scan_region(scan, &in.c, in.c.src->next_input_byte, in.c.src->bytes_in_buffer,
			index || record ? id_now() : 0, index, record, want, &out) != 0) {
		fprintf(stderr, "decode: unsure about an image that was fine before\n");
		exit(EXIT_FAILURE);
	}
}

static void scans(const struct sample *s, struct region_px want, bool all_rows)
{
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)want.width * 3 };
	struct cpu_budget budget;

	header(s);
	cpu_budget_begin(&budget, 0);
	if (scan_progressive_region(scan, &in.c, in.c.src->next_input_byte, in.c.src->bytes_in_buffer, MAX_SCANS,
				    &budget, all_rows, want, &out) != 0) {
		fprintf(stderr, "decode: unsure about an image that was fine before\n");
		exit(EXIT_FAILURE);
	}
}

static void any(const struct sample *s, struct region_px want, const struct checkpoints *index,
		struct checkpoints *record)
{
	if (s->progressive)
		scans(s, want, false);
	else
		ours(s, want, index, record);
}

static void scan_full(const struct sample *s)
{
	header(s);
	any(s, (struct region_px){ 0, 0, in.c.image_width, in.c.image_height }, NULL, NULL);
}

static void scan_crop(const struct sample *s)
{
	any(s, s->crop, NULL, NULL);
}

static uint64_t pack_id(const struct sample *s)
{
	return s->progressive ? scan_progressive_id(&in.c, in.c.src->next_input_byte, in.c.src->bytes_in_buffer)
			      : id_now();
}

static void pack_into(const struct sample *s, struct scratch *to)
{
	uint64_t id = pack_id(s);

	if (!scan_pack(scan, id, in.c.src->bytes_in_buffer * 8, to)) {
		fprintf(stderr, "decode: no pack of an image\n");
		exit(EXIT_FAILURE);
	}
}

static void scan_recording(const struct sample *s)
{
	static struct scratch fresh;

	if (s->progressive) {
		scans(s, s->crop, false);
		pack_into(s, &fresh);
		return;
	}
	header(s);
	checkpoints_init(s->fresh, &in.c, in.c.src->bytes_in_buffer, id_now());
	ours(s, s->crop, NULL, s->fresh);
}

/* Decodes all bits, and packs them. */
static void whole(const struct sample *s, struct scratch *to)
{
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)s->crop.width * 3 };

	if (s->progressive) {
		scans(s, s->crop, true);
	} else {
		header(s);
		if (scan_whole_region(scan, &in.c, in.c.src->next_input_byte, in.c.src->bytes_in_buffer, s->crop,
				      &out) != 0) {
			fprintf(stderr, "decode: unsure about an image that was fine before\n");
			exit(EXIT_FAILURE);
		}
	}
	pack_into(s, to);
}

static void scan_packing(const struct sample *s)
{
	static struct scratch fresh;

	whole(s, &fresh);
}

static void scan_packed(const struct sample *s)
{
	struct image out = { .rgb = rgb, .stride_bytes = (size_t)s->crop.width * 3 };
	const struct block_pack *pack = (const struct block_pack *)(const void *)s->pack.data;

	header(s);
	if (pack_id(s) != pack->scan_id || scan_packed_region(scan, &in.c, pack, s->crop, &out) != 0) {
		fprintf(stderr, "decode: the pack does not do\n");
		exit(EXIT_FAILURE);
	}
}

static void scan_indexed(const struct sample *s)
{
	if (s->progressive)
		scan_packed(s);
	else
		ours(s, s->crop, s->index, NULL);
}

static const struct way {
	const char *name;
	void (*run)(const struct sample *);
} ways[] = {
	{ "header only", header_only },
	{ "libjpeg-turbo, full", libjpeg_full },
	{ "libjpeg-turbo, region", libjpeg_region },
	{ "scan, full", scan_full },
	{ "scan, region", scan_crop },
	{ "scan, region, recording", scan_recording },
	{ "scan, region, indexed", scan_indexed },
	{ "scan, region, packing all", scan_packing },
	{ "scan, region, from packs", scan_packed },
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]), REGION_WAY = 2 };

/* Same distribution as RandomResizedCrop: area 8 to 100 %, aspect 3/4 to 4/3. */
static struct region_px random_crop(uint32_t width, uint32_t height, uint32_t *seed)
{
	for (unsigned i = 0; i < 10; i++) {
		double area = width * (double)height * (0.08 + 0.92 * jpeg_random(seed) / UINT32_MAX);
		double ratio = exp(log(0.75) + (log(4.0 / 3) - log(0.75)) * jpeg_random(seed) / UINT32_MAX);
		uint32_t w = (uint32_t)lround(sqrt(area * ratio)), h = (uint32_t)lround(sqrt(area / ratio));

		if (w && h && w <= width && h <= height)
			return (struct region_px){ jpeg_random(seed) % (width - w + 1),
						   jpeg_random(seed) % (height - h + 1), w, h };
	}
	uint32_t side = width < height ? width : height;

	return (struct region_px){ (width - side) / 2, (height - side) / 2, side, side };
}

static void add_file(const char *path, uint32_t *seed)
{
	struct sample *s = &samples[n_samples];

	s->bytes = jpeg_read_file(path, &s->n);
	if (!s->bytes || n_samples + 1 == MAX_FILES)
		return;
	header(s);
	if (!scan_supported(&in.c) && !scan_supported_progressive(&in.c)) {
		printf("%s: not supported, left out\n", path);
		return;
	}
	size_t n = in.c.src->bytes_in_buffer, size = checkpoints_size(&in.c, n);
	size_t need = (size_t)in.c.image_width * in.c.image_height * 3;

	s->crop = random_crop(in.c.image_width, in.c.image_height, seed);
	if (need > rgb_bytes)
		rgb = realloc(rgb, rgb_bytes = need);
	s->progressive = !scan_supported(&in.c);
	whole(s, &s->pack);
	file_bytes += n;
	pack_bytes += ((const struct block_pack *)(const void *)s->pack.data)->n_bytes;
	if (s->progressive) {
		n_samples++;
		return;
	}
	header(s);
	s->index = malloc(size);
	s->fresh = malloc(size);
	checkpoints_init(s->index, &in.c, n, id_now());
	ours(s, (struct region_px){ 0, 0, in.c.image_width, in.c.image_height }, NULL, s->index);
	n_samples++;
}

static void add_folder(const char *path, uint32_t *seed, int depth)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char name[2048];

	if (!d) {
		add_file(path, seed);
		return;
	}
	while (depth < 3 && (e = readdir(d)))
		if (e->d_name[0] != '.' &&
		    (size_t)snprintf(name, sizeof(name), "%s/%s", path, e->d_name) < sizeof(name))
			add_folder(name, seed, depth + 1);
	closedir(d);
}

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static double took[N_WAYS][MAX_ROUNDS];
	uint32_t seed = 2463534242;
	int rounds = argc > 2 ? atoi(argv[2]) : 7;
	int only = argc > 3 ? atoi(argv[3]) : -1;

	rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	scan = scan_create();
	if (!scan || jpeg_in_open(&in, (const uint8_t *)"\xFF\xD8\xFF\xD9", 4) == 0)
		return EXIT_FAILURE;
	add_folder(argc > 1 ? argv[1] : "../shared/data/photos", &seed, 0);
	if (n_samples == 0) {
		fprintf(stderr, "decode: no JPEGs in %s\n", argc > 1 ? argv[1] : "../shared/data/photos");
		return EXIT_FAILURE;
	}
	if (setjmp(in.escape)) {
		fprintf(stderr, "decode: libjpeg failed on an image that was fine before\n");
		return EXIT_FAILURE;
	}
	for (int round = 0; round < rounds; round++)
		for (int way = 0; way < N_WAYS; way++) {
			double start = cpu_ms();

			for (unsigned i = 0; (only < 0 || only == way) && i < n_samples; i++)
				ways[way].run(&samples[i]);
			took[way][round] = (cpu_ms() - start) / n_samples;
		}
	for (int way = 0; way < N_WAYS; way++)
		qsort(took[way], (size_t)rounds, sizeof(double), compare);
	printf("%u images, %d rounds, path %s; CPU ms per image, ratio to libjpeg-turbo's region\n", n_samples, rounds,
	       scan_paths()[0]);
	for (int way = 0; way < N_WAYS; way++)
		printf("%-26s %7.4f %6.3f\n", ways[way].name, took[way][rounds / 2],
		       took[way][rounds / 2] / took[REGION_WAY][rounds / 2]);
	printf("packs take %.2f times the files' bytes\n", (double)pack_bytes / (double)file_bytes);
	return EXIT_SUCCESS;
}
