/* PNG by other libraries: batchd's reader beside libpng and libspng, and its inflater beside zlib, libdeflate and ISA-L, on
 * the same files in one process.
 *
 *     png DIR [ROUNDS]      DIR: a folder of PNG files of 8 bits, RGB or grey; 0 rounds: of any kind, only compared
 *
 * Milliseconds of the thread's CPU time per file: the median over rounds, in each of which every way takes all files in
 * turn; and the median of the rounds' ratios to batchd's. Crops are random, as train224's. The inflaters get the joined
 * data of a file and write 64 KiB at a time, as a reader that may stop has to; libdeflate cannot, and gets it all.
 *
 * Built by hand, because batchd needs none of these packages: make build/tests/bench/libraries/png, with libspng-dev,
 * libisal-dev and libdeflate-dev installed. png-isal is the same program, in which batchd's reader inflates by ISA-L. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <isa-l.h>
#include <libdeflate.h>
#include <png.h>
#include <spng.h>
#include <zlib.h>

#include "image/formats/inflate.h"
#include "image/formats/png-chunks.h"
#include "image/formats/png-samples.h"
#include "image/formats/png.h"

enum { MAX_FILES = 1024, MAX_ROUNDS = 51, PART = 64 << 10 };

struct file {
	const char *name;
	uint8_t *bytes, *stream; /* the file, and its joined data with pads */
	size_t n, n_stream, n_raw;
	uint32_t width, height;
	struct region_px crop;
};

static struct file files[MAX_FILES];
static unsigned n_files;
static struct png_reader *reader;
static struct scratch pixels;
static uint8_t *out, *window;
static struct inflate *own;
static struct inflate_state *isal;
static struct libdeflate_decompressor *whole;

static _Noreturn void die(const char *what, const char *name)
{
	fprintf(stderr, "png: %s: %s\n", name, what);
	exit(1);
}

/* ---- pictures ---- */

static bool batchd_region(const struct file *f, struct region_px want)
{
	struct image_info info;
	struct image_error err;
	struct image made;

	bool ok = png_reader_open(reader, f->bytes, f->n, &info, &err) == 0 &&
		  png_reader_region(reader, false, want, NULL, &pixels, &made, &err) == 0;

	png_reader_close(reader);
	return ok;
}

static bool batchd_whole(const struct file *f)
{
	return batchd_region(f, (struct region_px){ 0, 0, f->width, f->height });
}

static bool batchd_crop(const struct file *f)
{
	return batchd_region(f, f->crop);
}

struct from {
	const uint8_t *at;
};

static void on_read(png_structp png, png_bytep to, size_t n)
{
	struct from *from = png_get_io_ptr(png);

	memcpy(to, from->at, n);
	from->at += n;
}

/* To rows of RGB; rows after the last wanted one are not read. */
static bool libpng_rows(const struct file *f, uint32_t n_rows)
{
	png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
	png_infop info = png_create_info_struct(png);
	struct from from = { f->bytes };

	if (setjmp(png_jmpbuf(png))) {
		png_destroy_read_struct(&png, &info, NULL);
		return false;
	}
	png_set_read_fn(png, &from, on_read);
	png_read_info(png, info);
	png_set_gray_to_rgb(png);
	png_set_strip_alpha(png);
	png_start_read_image(png);
	for (uint32_t y = 0; y < n_rows; y++)
		png_read_row(png, out + (size_t)y * f->width * 3, NULL);
	png_destroy_read_struct(&png, &info, NULL);
	return true;
}

static bool libpng_whole(const struct file *f)
{
	return libpng_rows(f, f->height);
}

static bool libpng_crop(const struct file *f)
{
	return libpng_rows(f, f->crop.y + f->crop.height);
}

static spng_ctx *spng_of(const struct file *f)
{
	spng_ctx *c = spng_ctx_new(SPNG_CTX_IGNORE_ADLER32);

	spng_set_crc_action(c, SPNG_CRC_USE, SPNG_CRC_USE);
	spng_set_png_buffer(c, f->bytes, f->n);
	return c;
}

static bool spng_whole(const struct file *f)
{
	spng_ctx *c = spng_of(f);
	int r = spng_decode_image(c, out, (size_t)f->width * f->height * 3, SPNG_FMT_RGB8, 0);

	spng_ctx_free(c);
	return r == 0;
}

/* Rows after the last wanted one are not read. */
static bool spng_crop(const struct file *f)
{
	spng_ctx *c = spng_of(f);
	int r = spng_decode_image(c, NULL, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE);

	for (uint32_t y = 0; y < f->crop.y + f->crop.height && r == 0; y++)
		r = spng_decode_row(c, out + (size_t)y * f->width * 3, (size_t)f->width * 3);
	spng_ctx_free(c);
	return r == 0 || r == SPNG_EOI;
}

/* ---- inflaters ---- */

/* The window slides as a reader's does. */
static uint8_t *slide(uint8_t *end)
{
	if (end - window < INFLATE_WINDOW + PART)
		return end;
	memmove(window, end - INFLATE_WINDOW, INFLATE_WINDOW);
	return window + INFLATE_WINDOW;
}

static bool own_inflate(const struct file *f)
{
	uint8_t *end = window;
	enum inflate_outcome r = inflate_begin(own, f->stream, f->n_stream);

	while (r == INFLATE_MORE) {
		end = slide(end);
		r = inflate_run(own, &end, window + INFLATE_WINDOW + PART);
	}
	return r == INFLATE_END;
}

static bool zlib_inflate(const struct file *f)
{
	z_stream z = { .next_in = f->stream, .avail_in = (uInt)f->n_stream };
	int r = inflateInit(&z);

	while (r == Z_OK) {
		z.next_out = window;
		z.avail_out = PART;
		r = inflate(&z, Z_NO_FLUSH);
	}
	inflateEnd(&z);
	return r == Z_STREAM_END;
}

/* It keeps its own window. */
static bool isal_run(const struct file *f)
{
	isal_inflate_init(isal);
	isal->crc_flag = ISAL_ZLIB;
	isal->next_in = f->stream;
	isal->avail_in = (uint32_t)f->n_stream;
	while (isal->block_state != ISAL_BLOCK_FINISH) {
		isal->next_out = window;
		isal->avail_out = PART;
		if (isal_inflate(isal) != ISAL_DECOMP_OK)
			return false;
	}
	return true;
}

static bool libdeflate_run(const struct file *f)
{
	return libdeflate_zlib_decompress(whole, f->stream, f->n_stream, out, f->n_raw, NULL) == 0;
}

/* ---- measuring ---- */

static const struct way {
	const char *name;
	bool (*run)(const struct file *f);
	unsigned beside; /* the way that its ratio is to */
} ways[] = {
	{ "whole picture: batchd", batchd_whole, 0 },
	{ "whole picture: libpng", libpng_whole, 0 },
	{ "whole picture: libspng", spng_whole, 0 },
	{ "crop: batchd", batchd_crop, 3 },
	{ "crop: libpng, to the last row", libpng_crop, 3 },
	{ "crop: libspng, to the last row", spng_crop, 3 },
	{ "inflating: batchd", own_inflate, 6 },
	{ "inflating: zlib", zlib_inflate, 6 },
	{ "inflating: ISA-L", isal_run, 6 },
	{ "inflating: libdeflate, at once", libdeflate_run, 6 },
};
enum { N_WAYS = sizeof(ways) / sizeof(*ways) };

static void load(const char *dir, const char *name)
{
	struct file *f = &files[n_files];
	struct image_info info;
	struct image_error err;
	char path[4096];
	struct arena arena = { 0 };
	struct png_layout l;
	const uint8_t *data;
	size_t at, n;

	f->name = name;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *in = fopen(path, "rb");
	if (!in || fseek(in, 0, SEEK_END))
		die("cannot be read", path);
	f->n = (size_t)ftell(in);
	rewind(in);
	f->bytes = malloc(f->n);
	if (!f->bytes || fread(f->bytes, 1, f->n, in) != f->n)
		die("cannot be read", path);
	fclose(in);
	if (png_reader_open(reader, f->bytes, f->n, &info, &err) || png_layout_read(f->bytes, f->n, &arena, &l, &err)) {
		printf("%s: left out: %s\n", name, err.text);
		return;
	}
	f->width = info.width;
	f->height = info.height;
	f->n_raw = png_row_bytes(&l, l.width) * l.height;
	f->stream = calloc(1, l.data_bytes + INFLATE_PAD_BYTES);
	for (at = l.data_at; f->stream && png_next_data(f->bytes, f->n, &at, &data, &n); f->n_stream += n)
		memcpy(f->stream + f->n_stream, data, n);
	double side = 0.3 + 0.7 * (rand() / (double)RAND_MAX);
	f->crop.width = (uint32_t)fmax(1, f->width * side);
	f->crop.height = (uint32_t)fmax(1, f->height * side);
	f->crop.x = (uint32_t)((f->width - f->crop.width) * (rand() / (double)RAND_MAX));
	f->crop.y = (uint32_t)((f->height - f->crop.height) * (rand() / (double)RAND_MAX));
	n_files++;
}

/* Whether libspng makes the pixels that batchd makes, which are Pillow's; names the files where it does not. */
static void compare(void)
{
	unsigned n_same = 0;

	for (unsigned i = 0; i < n_files; i++) {
		const struct file *f = &files[i];
		bool ok = batchd_whole(f), made = spng_whole(f);

		if (made == ok && (!ok || !memcmp(pixels.data, out, (size_t)f->width * f->height * 3)))
			n_same++;
		else
			printf("%s: libspng %s\n", f->name,
			       made == ok ? "makes other pixels"
			       : ok       ? "refuses it"
					  : "decodes it");
	}
	printf("%u files, %u of them as libspng has them\n", n_files, n_same);
}

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(const double *of, unsigned n)
{
	double sorted[MAX_ROUNDS];

	memcpy(sorted, of, n * sizeof(*of));
	qsort(sorted, n, sizeof(*sorted), compare_doubles);
	return sorted[n / 2];
}

int main(int argc, char **argv)
{
	static double ms[N_WAYS][MAX_ROUNDS];
	unsigned n_rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 11;
	struct dirent **names;
	size_t most = 0;

	if (argc < 2 || n_rounds > MAX_ROUNDS)
		die("png DIR [ROUNDS]", "usage");
	reader = png_reader_create(&decode_limits_default);
	own = malloc(sizeof(*own));
	isal = malloc(sizeof(*isal));
	whole = libdeflate_alloc_decompressor();
	window = calloc(1, INFLATE_WINDOW + 2 * PART + INFLATE_SLACK);
	int n = scandir(argv[1], &names, NULL, alphasort);
	for (int i = 0; i < n && n_files < MAX_FILES; i++)
		if (strstr(names[i]->d_name, ".png"))
			load(argv[1], names[i]->d_name);
	for (unsigned i = 0; i < n_files; i++) {
		size_t bytes = files[i].n_raw + (size_t)files[i].width * files[i].height * 3;

		most = bytes > most ? bytes : most;
	}
	out = malloc(most + 64);
	if (!n_files || !out || !reader || !own || !isal || !whole || !window)
		die("no PNG files, or no memory", argv[1]);
	compare();
	if (!n_rounds)
		return 0;
	for (unsigned round = 0; round < n_rounds; round++)
		for (unsigned w = 0; w < N_WAYS; w++) {
			double began = cpu_ms();

			for (unsigned i = 0; i < n_files; i++)
				if (!ways[w].run(&files[i]))
					die("cannot be decoded", ways[w].name);
			ms[w][round] = (cpu_ms() - began) / n_files;
		}
	for (unsigned w = 0; w < N_WAYS; w++) {
		double ratio[MAX_ROUNDS];

		for (unsigned round = 0; round < n_rounds; round++)
			ratio[round] = ms[w][round] / ms[ways[w].beside][round];
		printf("%-32s %7.3f ms  %5.2f\n", ways[w].name, median(ms[w], n_rounds), median(ratio, n_rounds));
	}
	return 0;
}
