/* JPEGs for tests, fuzzers and benchmarks: made, read from files, and decoded whole by libjpeg as the reference. */
#ifndef BATCHD_TESTS_JPEGS_H
#define BATCHD_TESTS_JPEGS_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

/* A libjpeg decompressor that returns errors instead of exiting. */
struct jpeg_in {
	struct jpeg_decompress_struct c;
	struct jpeg_error_mgr errors;
	jmp_buf escape;
	long n_warnings;
};

static inline _Noreturn void jpeg_in_fail(j_common_ptr c)
{
	longjmp(((struct jpeg_in *)((char *)c->err - offsetof(struct jpeg_in, errors)))->escape, 1);
}

static inline void jpeg_in_quiet(j_common_ptr c, int level)
{
	if (level < 0)
		c->err->num_warnings++;
}

/* Reads the header. -1: an error; call jpeg_in_close in any case. */
static inline int jpeg_in_open(struct jpeg_in *in, const uint8_t *bytes, size_t n)
{
	memset(in, 0, sizeof(*in));
	in->c.err = jpeg_std_error(&in->errors);
	in->errors.error_exit = jpeg_in_fail;
	in->errors.emit_message = jpeg_in_quiet;
	if (setjmp(in->escape))
		return -1;
	jpeg_create_decompress(&in->c);
	jpeg_mem_src(&in->c, bytes, (unsigned long)n);
	return jpeg_read_header(&in->c, TRUE) == JPEG_HEADER_OK ? 0 : -1;
}

static inline void jpeg_in_close(struct jpeg_in *in)
{
	jpeg_destroy_decompress(&in->c);
}

/* All pixels as RGB, width * 3 bytes a row, into `rgb`. -1 on an error; warnings are in in->errors.num_warnings. */
static inline int jpeg_in_pixels(struct jpeg_in *in, uint8_t *rgb)
{
	if (setjmp(in->escape))
		return -1;
	in->c.out_color_space = JCS_RGB;
	in->c.dct_method = JDCT_ISLOW;
	jpeg_start_decompress(&in->c);
	while (in->c.output_scanline < in->c.output_height) {
		JSAMPROW row = rgb + (size_t)in->c.output_scanline * in->c.output_width * 3;

		jpeg_read_scanlines(&in->c, &row, 1);
	}
	jpeg_finish_decompress(&in->c);
	return 0;
}

/* How to make a JPEG. */
struct jpeg_recipe {
	unsigned width, height;
	int n_components; /* 1 or 3 */
	bool rgb;         /* three components that are not converted */
	int h, v;         /* luma sampling; chroma is 1x1 */
	int quality;
	bool optimize, progressive, arithmetic;
	unsigned restart; /* interval in MCUs */
	unsigned noise;   /* 0: smooth; 255: nothing but noise */
};

static inline uint32_t jpeg_random(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

/* Any sampling, size, quality and restart interval, sometimes grey. */
static inline struct jpeg_recipe jpeg_random_progressive(uint32_t *seed)
{
	struct jpeg_recipe r = { .width = 5 + jpeg_random(seed) % 200 };

	r.height = 1 + jpeg_random(seed) % 150;
	r.n_components = jpeg_random(seed) % 6 ? 3 : 1;
	r.h = 1 + (int)(jpeg_random(seed) % 2);
	r.v = 1 + (int)(jpeg_random(seed) % 2);
	r.quality = 1 + (int)(jpeg_random(seed) % 100);
	r.restart = jpeg_random(seed) % 3 ? 0 : 1 + jpeg_random(seed) % 40;
	r.noise = jpeg_random(seed) % 256;
	r.progressive = true;
	return r;
}

/* Compressed bytes; the caller frees them. */
static inline uint8_t *jpeg_make(const struct jpeg_recipe *r, uint32_t seed, size_t *n)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;
	unsigned char *bytes = NULL;
	unsigned long size = 0;
	uint8_t *row = malloc((size_t)r->width * 3);

	seed |= 1;
	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &bytes, &size);
	c.image_width = r->width;
	c.image_height = r->height;
	c.input_components = r->n_components;
	c.in_color_space = r->n_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(&c);
	if (r->rgb)
		jpeg_set_colorspace(&c, JCS_RGB);
	jpeg_set_quality(&c, r->quality, TRUE);
	c.comp_info[0].h_samp_factor = r->h;
	c.comp_info[0].v_samp_factor = r->v;
	c.optimize_coding = r->optimize;
	c.arith_code = r->arithmetic;
	c.restart_interval = r->restart;
	if (r->progressive)
		jpeg_simple_progression(&c);
	jpeg_start_compress(&c, TRUE);
	for (unsigned y = 0; y < r->height; y++) {
		JSAMPROW p = row;

		for (unsigned i = 0; i < r->width * (unsigned)r->n_components; i++) {
			unsigned x = i / (unsigned)r->n_components, k = i % (unsigned)r->n_components;
			unsigned smooth = (x * (3 + k) / 2 + y * (5 - k) + ((x / 37 + y / 23) % 2) * 90) & 511;

			smooth = smooth > 255 ? 511 - smooth : smooth;
			row[i] = (uint8_t)((smooth * (255 - r->noise) + (jpeg_random(&seed) >> 24) * r->noise) / 255);
		}
		jpeg_write_scanlines(&c, &p, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	free(row);
	*n = size;
	return bytes;
}

/* A file's bytes; the caller frees them. NULL when the file cannot be read. */
static inline uint8_t *jpeg_read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes = NULL;

	*n = 0;
	if (!f)
		return NULL;
	if (fseek(f, 0, SEEK_END) == 0) {
		long size = ftell(f);

		rewind(f);
		if (size > 0 && (bytes = malloc((size_t)size)) && fread(bytes, 1, (size_t)size, f) == (size_t)size)
			*n = (size_t)size;
	}
	fclose(f);
	return bytes;
}

#endif
