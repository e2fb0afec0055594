/* Decoded as libtiff does for Pillow: the file's tables first, then the chunk's own JPEG; the colours are what the TIFF
 * says, whatever the JPEG's markers say; damage that libjpeg only warns of, such as an early end, is no error.
 *
 * libtiff lets a chunk use tables that an earlier chunk brought. Here it cannot: a region must not depend on chunks that
 * it does not touch.
 *
 * libjpeg leaves its functions by longjmp when it fails. All state that must survive is in struct tiff_jpeg. */
#include "image/formats/tiff-jpeg.h"

#include <errno.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>

#include "image/formats/jpeg-memory.h"

#include <jerror.h>

enum { MOST_COMPONENTS = 6, SPARE_ROWS = 1 };

struct tiff_jpeg {
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr errors;
	struct jpeg_source_mgr source;
	struct jpeg_progress_mgr progress;
	struct jpeg_memory memory;
	const struct decode_limits *limits; /* borrowed */
	struct scratch spare;               /* a row that is not wanted */

	jmp_buf escape;
	struct cpu_budget *budget; /* of the call in progress */
	struct image_error *err;
	int outcome; /* of that call after escape */
};

static struct tiff_jpeg *tiff_jpeg_of(j_common_ptr cinfo)
{
	return (struct tiff_jpeg *)((char *)cinfo - offsetof(struct tiff_jpeg, cinfo));
}

static _Noreturn void tiff_jpeg_give_up(struct tiff_jpeg *j, int outcome)
{
	j->outcome = outcome;
	longjmp(j->escape, 1);
}

static _Noreturn void tiff_jpeg_on_error(j_common_ptr cinfo)
{
	struct tiff_jpeg *j = tiff_jpeg_of(cinfo);
	char text[JMSG_LENGTH_MAX];

	if (j->errors.msg_code == JERR_OUT_OF_MEMORY)
		tiff_jpeg_give_up(j, -ENOMEM);
	j->errors.format_message(cinfo, text);
	tiff_jpeg_give_up(j,
			  image_fail(j->err, IMAGE_E_CORRUPT, "TIFF with a JPEG that cannot be decoded: %.150s", text));
}

static void tiff_jpeg_on_message(j_common_ptr cinfo, int level)
{
	if (level < 0)
		cinfo->err->num_warnings++;
}

static void tiff_jpeg_no_output(j_common_ptr cinfo)
{
	(void)cinfo; /* never on stderr */
}

static _Noreturn void tiff_jpeg_end_of_time(struct tiff_jpeg *j)
{
	tiff_jpeg_give_up(j, image_fail(j->err, IMAGE_E_TIME,
					"TIFF that takes more than %.3g s of processor time to decode "
					"(limits.image_time in the daemon's configuration)",
					(double)j->limits->max_ns / 1e9));
}

static void tiff_jpeg_on_progress(j_common_ptr common)
{
	j_decompress_ptr cinfo = (j_decompress_ptr)common;
	struct tiff_jpeg *j = tiff_jpeg_of(common);
	uint32_t rows = cinfo->max_v_samp_factor > 0 ? (uint32_t)cinfo->max_v_samp_factor * DCTSIZE : DCTSIZE;

	if (cinfo->input_scan_number > 0 && (uint32_t)cinfo->input_scan_number > j->limits->max_scans)
		tiff_jpeg_give_up(j, image_fail(j->err, IMAGE_E_LIMIT, "TIFF with a JPEG of more than %u scans",
						j->limits->max_scans));
	if (!cpu_budget_spend(j->budget, (uint64_t)cinfo->image_width * rows))
		tiff_jpeg_end_of_time(j);
}

static void tiff_jpeg_source_nothing(j_decompress_ptr cinfo)
{
	(void)cinfo;
}

/* The data end early: libjpeg makes up the rest, as it does for libtiff. */
static boolean tiff_jpeg_source_fill(j_decompress_ptr cinfo)
{
	static const JOCTET end[] = { 0xff, JPEG_EOI };

	WARNMS(cinfo, JWRN_JPEG_EOF);
	cinfo->src->next_input_byte = end;
	cinfo->src->bytes_in_buffer = sizeof(end);
	return TRUE;
}

static void tiff_jpeg_source_skip(j_decompress_ptr cinfo, long n)
{
	if (n <= 0)
		return;
	if ((size_t)n > cinfo->src->bytes_in_buffer) {
		(void)tiff_jpeg_source_fill(cinfo);
		return;
	}
	cinfo->src->next_input_byte += n;
	cinfo->src->bytes_in_buffer -= (size_t)n;
}

static int tiff_jpeg_set_up(struct tiff_jpeg *j)
{
	struct image_error ignored;

	j->err = &ignored;
	j->cinfo.err = jpeg_std_error(&j->errors);
	j->errors.error_exit = tiff_jpeg_on_error;
	j->errors.emit_message = tiff_jpeg_on_message;
	j->errors.output_message = tiff_jpeg_no_output;
	j->progress.progress_monitor = tiff_jpeg_on_progress;
	j->source = (struct jpeg_source_mgr){
		.init_source = tiff_jpeg_source_nothing,
		.fill_input_buffer = tiff_jpeg_source_fill,
		.skip_input_data = tiff_jpeg_source_skip,
		.resync_to_restart = jpeg_resync_to_restart,
		.term_source = tiff_jpeg_source_nothing,
	};
	if (setjmp(j->escape))
		return j->outcome;
	jpeg_create_decompress(&j->cinfo);
	jpeg_memory_install(&j->memory, &j->cinfo);
	j->cinfo.src = &j->source;
	j->cinfo.progress = &j->progress;
	return 0;
}

struct tiff_jpeg *tiff_jpeg_create(const struct decode_limits *limits)
{
	struct tiff_jpeg *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->limits = limits;
	/* Coefficients of several scans: 2 bytes each, padded to whole MCUs. */
	j->memory.arena.limit_bytes = (size_t)limits->max_px * 2 * (MOST_COMPONENTS + 1) + (256 << 20);
	if (tiff_jpeg_set_up(j)) {
		tiff_jpeg_destroy(j);
		return NULL;
	}
	return j;
}

void tiff_jpeg_destroy(struct tiff_jpeg *j)
{
	if (!j)
		return;
	jpeg_destroy_decompress(&j->cinfo);
	jpeg_memory_finish(&j->memory);
	scratch_finish(&j->spare);
	free(j);
}

bool tiff_jpeg_sampling(const uint8_t *bytes, size_t n_bytes, unsigned *across, unsigned *down)
{
	size_t at = 2;

	while (at + 4 <= n_bytes) {
		unsigned marker = bytes[at + 1], n = (unsigned)bytes[at + 2] << 8 | bytes[at + 3];
		bool is_frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;

		if (bytes[at] != 0xff || marker == 0xda)
			return false;
		if (marker == 0xff) { /* fill */
			at++;
			continue;
		}
		if (is_frame && at + 12 <= n_bytes) {
			*across = bytes[at + 11] >> 4;
			*down = bytes[at + 11] & 15;
			return true;
		}
		at += 2 + n;
	}
	return false;
}

static int tiff_jpeg_refuse(struct tiff_jpeg *j, const char *why)
{
	const struct jpeg_decompress_struct *x = &j->cinfo;

	return image_fail(j->err, IMAGE_E_FORMAT, "TIFF with a JPEG of %ux%u pixels, %d components of %d bits: %s",
			  x->image_width, x->image_height, x->num_components, x->data_precision, why);
}

/* What libtiff checks. It takes a JPEG that is too small, too, and leaves the rest as it was. */
static int tiff_jpeg_check(struct tiff_jpeg *j, const struct tiff_jpeg_chunk *c)
{
	const struct jpeg_decompress_struct *x = &j->cinfo;

	if (x->image_width != c->width || x->image_height < c->height ||
	    (x->image_height > c->height && !c->may_be_taller))
		return tiff_jpeg_refuse(j, "the size of its strip or tile is another");
	if ((uint64_t)x->image_width * x->image_height > j->limits->max_px)
		return image_fail(j->err, IMAGE_E_LIMIT, "TIFF with a JPEG of %ux%u pixels", x->image_width,
				  x->image_height);
	if ((unsigned)x->num_components != c->n_samples || x->num_components > MOST_COMPONENTS)
		return tiff_jpeg_refuse(j, "the number of samples in the TIFF is another");
	if (x->data_precision != 8)
		return tiff_jpeg_refuse(j, "only 8 bits are read");
	for (int i = 0; i < x->num_components; i++) {
		const jpeg_component_info *comp = &x->comp_info[i];

		if (comp->h_samp_factor != (int)(i ? 1 : c->across) || comp->v_samp_factor != (int)(i ? 1 : c->down))
			return tiff_jpeg_refuse(j, "its sampling factors are not those of the TIFF");
	}
	return 0;
}

static void tiff_jpeg_read_tables(struct tiff_jpeg *j, const struct tiff_jpeg_chunk *c)
{
	jpeg_abort_decompress(&j->cinfo);
	jpeg_memory_forget_tables(&j->memory, &j->cinfo);
	if (!c->tables)
		return;
	if (!cpu_budget_spend(j->budget, c->n_tables)) /* read again for each of thousands of chunks */
		tiff_jpeg_end_of_time(j);
	j->source.next_input_byte = c->tables;
	j->source.bytes_in_buffer = c->n_tables;
	if (jpeg_read_header(&j->cinfo, FALSE) != JPEG_HEADER_TABLES_ONLY)
		tiff_jpeg_give_up(j, image_fail(j->err, IMAGE_E_CORRUPT,
						"TIFF whose tag 347 (JPEGTables) has an image in place of tables"));
}

/* The rows of the chunk that are not wanted are decoded for their errors. */
static void tiff_jpeg_end(struct tiff_jpeg *j, const struct tiff_jpeg_chunk *c)
{
	j_decompress_ptr cinfo = &j->cinfo;
	JSAMPROW spare = j->spare.data;

	if (cinfo->output_height > c->height) /* libtiff stops there, too */
		return;
	if (cinfo->output_height - cinfo->output_scanline > SPARE_ROWS)
		(void)jpeg_skip_scanlines(cinfo, cinfo->output_height - cinfo->output_scanline - SPARE_ROWS);
	if (cinfo->output_scanline < cinfo->output_height)
		(void)jpeg_read_scanlines(cinfo, &spare, 1);
	(void)jpeg_finish_decompress(cinfo);
}

static int tiff_jpeg_decode(struct tiff_jpeg *j, const struct tiff_jpeg_chunk *c, uint32_t n_rows, uint8_t *out)
{
	j_decompress_ptr cinfo = &j->cinfo;
	size_t row = (size_t)c->width * c->n_samples;
	int outcome;

	if (setjmp(j->escape))
		return j->outcome;
	tiff_jpeg_read_tables(j, c);
	j->source.next_input_byte = c->bytes;
	j->source.bytes_in_buffer = c->n_bytes;
	(void)jpeg_read_header(cinfo, TRUE); /* never suspends: see tiff_jpeg_source_fill */
	outcome = tiff_jpeg_check(j, c);
	if (outcome)
		return outcome;
	if (!scratch_reserve(&j->spare, row))
		return -ENOMEM;
	cinfo->jpeg_color_space = c->is_ycbcr ? JCS_YCbCr : JCS_UNKNOWN;
	cinfo->out_color_space = c->is_ycbcr ? JCS_RGB : JCS_UNKNOWN;
	(void)jpeg_start_decompress(cinfo);
	while (cinfo->output_scanline < n_rows) {
		JSAMPROW to = out + cinfo->output_scanline * row;

		(void)jpeg_read_scanlines(cinfo, &to, 1);
	}
	tiff_jpeg_end(j, c);
	return 0;
}

int tiff_jpeg_rows(struct tiff_jpeg *j, const struct tiff_jpeg_chunk *c, uint32_t n_rows, uint8_t *out,
		   struct cpu_budget *budget, struct image_error *err)
{
	int outcome;

	j->budget = budget;
	j->err = err;
	outcome = tiff_jpeg_decode(j, c, n_rows, out);
	jpeg_abort_decompress(&j->cinfo); /* frees the chunk's memory, whatever the outcome */
	return outcome;
}
