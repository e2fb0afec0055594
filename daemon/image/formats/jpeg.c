/* Decodes one JPEG at a time, and only the part that the wanted region needs. libjpeg-turbo reads the header and is the
 * reference. scan.c decodes plain files to the same pixels; libjpeg-turbo decodes all other files and every
 * doubtful file as follows.
 *
 * Columns: jpeg_crop_scanline starts at a whole MCU and lets the upsampler treat both cut edges as the picture's edges,
 * which gives the outermost pixels wrong colours. So this file asks for a margin and leaves it out of the result. Rows:
 * jpeg_skip_scanlines entropy-decodes without an inverse DCT, and nothing is decoded after the last wanted row.
 *
 * A file is broken exactly when Pillow refuses it: the data end before the last row is complete, or libjpeg reports an
 * error (not a warning) anywhere. The rest after the last wanted row is searched for its markers without decoding; only
 * if these are unusual is it decoded. So a region fails exactly when the whole picture does.
 *
 * libjpeg leaves its functions by longjmp when it fails. All state that must survive is in struct jpeg_reader. */
#include "image/formats/jpeg.h"

#include <errno.h>
#include <setjmp.h>
#include <string.h>
#include <stddef.h>
#include <stdlib.h>

#include "image/formats/jpeg-header.h"
#include "image/formats/jpeg-memory.h"
#include "image/jpeg/scan.h"
#include "base/cpu-budget.h"

#include <jerror.h>

/* The chroma of pixel x depends on samples up to x / 2 + 1, whose own pixels end at x + 2; to the left one pixel is
 * enough. */
enum { MARGIN_LEFT = 1, MARGIN_RIGHT = 2, ROWS_AT_ONCE = 16, ROW_ALIGN = 64 };
/* Huffman-coded, a grey block of 64 pixels takes at least one bit. Above SMALL_PX a file with fewer bytes than that is
 * refused. Arithmetic coding can take less, but so little only for a picture without content. Smaller pictures are
 * cheap to decode, and Pillow opens them. */
enum { PX_PER_BYTE = 512, SMALL_PX = 1 << 24 };

#define TEXT_OF(x) #x
#define TEXT_OF_VALUE(x) TEXT_OF(x)
#ifdef LIBJPEG_TURBO_VERSION
#define LIBJPEG_VERSION TEXT_OF_VALUE(LIBJPEG_TURBO_VERSION)
#else
#define LIBJPEG_VERSION "version unknown"
#endif

struct jpeg_reader {
	struct jpeg_decompress_struct cinfo;
	struct jpeg_error_mgr errors;
	struct jpeg_source_mgr source;
	struct jpeg_progress_mgr progress;
	struct jpeg_memory memory;
	struct scan *scan;    /* the fast decoder for plain files */
	struct scratch index; /* of the open picture; n_index_bytes of it, 0: none wanted or, for a pack, none made */
	size_t n_index_bytes;
	uint32_t index_rows;           /* of the known index */
	uint64_t scan_id;              /* of the open picture, where an index is wanted */
	bool wants_pack;               /* of the open picture: its index is a pack of blocks, or says that none pays */
	enum index_use index_use;      /* of the open picture, if it is baseline */
	const struct block_pack *pack; /* the known one, borrowed; NULL: none */
	const void *known;             /* valid states of the open picture, borrowed, where wants_pack */
	size_t n_known;
	const struct decode_limits *limits; /* borrowed */
	struct scratch joined;              /* EXIF in several segments */
	struct jpeg_header header;
	const uint8_t *bytes; /* borrowed; NULL while closed */
	size_t n_bytes;
	uint32_t shrink; /* edges of the result are these times shorter: 1, 2, 4 or 8 */
	bool finishing;  /* all rows are out: missing data is no longer an error */

	jmp_buf escape;
	struct cpu_budget budget;
	struct image_error *err; /* of the call in progress */
	int outcome;             /* result of that call after escape */
};

static struct jpeg_reader *reader_of(j_decompress_ptr cinfo)
{
	return (struct jpeg_reader *)((char *)cinfo - offsetof(struct jpeg_reader, cinfo));
}

static _Noreturn void jpeg_reader_give_up(struct jpeg_reader *r, int outcome)
{
	r->outcome = outcome;
	longjmp(r->escape, 1);
}

/* Pillow reads some of these: it has its own libjpeg-turbo. */
static _Noreturn void refuse_process(struct jpeg_reader *r, int marker)
{
	int n = marker & 15;
	const char *kind = (n & 3) == 3 ? "lossless" : n & 4 ? "hierarchical" : "unknown";

	jpeg_reader_give_up(r, image_fail(r->err, IMAGE_E_FORMAT,
					  "%s JPEG (SOF%d), which this libjpeg-turbo (" LIBJPEG_VERSION
					  ") cannot decode; save it as a baseline JPEG or a PNG",
					  kind, n));
}

static void jpeg_reader_on_error(j_common_ptr cinfo)
{
	struct jpeg_reader *r = reader_of((j_decompress_ptr)cinfo);
	char text[JMSG_LENGTH_MAX];

	if (r->errors.msg_code == JERR_OUT_OF_MEMORY)
		jpeg_reader_give_up(r, -ENOMEM);
	if (r->errors.msg_code == JERR_SOF_UNSUPPORTED)
		refuse_process(r, r->errors.msg_parm.i[0]);
	r->errors.format_message(cinfo, text);
	jpeg_reader_give_up(r, image_fail(r->err, IMAGE_E_CORRUPT, "JPEG cannot be decoded: %.150s", text));
}

/* Warnings are problems that libjpeg repairs by itself; Pillow does not report them either. */
static void jpeg_reader_on_message(j_common_ptr cinfo, int level)
{
	if (level < 0)
		cinfo->err->num_warnings++;
}

static void on_output(j_common_ptr cinfo)
{
	(void)cinfo; /* never on stderr */
}

static void jpeg_reader_on_progress(j_common_ptr common)
{
	j_decompress_ptr cinfo = (j_decompress_ptr)common;
	struct jpeg_reader *r = reader_of(cinfo);

	if (cinfo->input_scan_number > 0 && (uint32_t)cinfo->input_scan_number > r->limits->max_scans)
		jpeg_reader_give_up(
			r, image_fail(r->err, IMAGE_E_LIMIT, "JPEG with more than %u scans", r->limits->max_scans));
	/* libjpeg calls this once for each row of MCUs and each of its passes. */
	uint32_t mcu_height = cinfo->max_v_samp_factor > 0 ? (uint32_t)cinfo->max_v_samp_factor * DCTSIZE : DCTSIZE;
	if (!cpu_budget_spend(&r->budget, (uint64_t)cinfo->image_width * mcu_height))
		jpeg_reader_give_up(r, image_fail(r->err, IMAGE_E_TIME,
						  "JPEG that takes more than %.3g s of processor time to decode "
						  "(limits.image_time in the daemon's configuration)",
						  (double)r->limits->max_ns / 1e9));
}

static void source_nothing(j_decompress_ptr cinfo)
{
	(void)cinfo;
}

/* The whole file was in the buffer, so a request for more means that it is cut short. */
static boolean source_fill(j_decompress_ptr cinfo)
{
	struct jpeg_reader *r = reader_of(cinfo);

	if (r->finishing)
		jpeg_reader_give_up(r, 0);
	jpeg_reader_give_up(r, image_fail(r->err, IMAGE_E_CORRUPT, "JPEG cut short: the data end at row %u of %u",
					  cinfo->output_scanline, r->header.height));
}

static void source_skip(j_decompress_ptr cinfo, long n)
{
	if (n <= 0)
		return;
	if ((size_t)n > cinfo->src->bytes_in_buffer)
		(void)source_fill(cinfo);
	cinfo->src->next_input_byte += n;
	cinfo->src->bytes_in_buffer -= (size_t)n;
}

static void set_callbacks(struct jpeg_reader *r)
{
	r->cinfo.err = jpeg_std_error(&r->errors);
	r->errors.error_exit = jpeg_reader_on_error;
	r->errors.emit_message = jpeg_reader_on_message;
	r->errors.output_message = on_output;
	r->progress.progress_monitor = jpeg_reader_on_progress;
	r->source = (struct jpeg_source_mgr){
		.init_source = source_nothing,
		.fill_input_buffer = source_fill,
		.skip_input_data = source_skip,
		.resync_to_restart = jpeg_resync_to_restart,
		.term_source = source_nothing,
	};
}

static int set_up(struct jpeg_reader *r)
{
	struct image_error ignored;

	r->err = &ignored;
	set_callbacks(r);
	if (setjmp(r->escape))
		return r->outcome;
	jpeg_create_decompress(&r->cinfo);
	jpeg_memory_install(&r->memory, &r->cinfo);
	r->cinfo.src = &r->source;
	r->cinfo.progress = &r->progress;
	return 0;
}

struct jpeg_reader *jpeg_reader_create(const struct decode_limits *limits)
{
	struct jpeg_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->limits = limits;
	/* Coefficients of a progressive picture: 2 bytes each, at most 4 layers, padded to whole MCUs. */
	r->memory.arena.limit_bytes = (size_t)limits->max_px * 10 + (256 << 20);
	r->scan = scan_create();
	if (!r->scan || set_up(r)) {
		jpeg_reader_destroy(r);
		return NULL;
	}
	return r;
}

void jpeg_reader_destroy(struct jpeg_reader *r)
{
	if (!r)
		return;
	jpeg_destroy_decompress(&r->cinfo);
	jpeg_memory_finish(&r->memory);
	scan_destroy(r->scan);
	scratch_finish(&r->index);
	scratch_finish(&r->joined);
	free(r);
}

void jpeg_reader_close(struct jpeg_reader *r)
{
	r->bytes = NULL;
	jpeg_abort_decompress(&r->cinfo);
}

static int jpeg_reader_check_size(struct jpeg_reader *r, struct image_error *err)
{
	const struct jpeg_header *h = &r->header;
	uint64_t n_px = (uint64_t)h->width * h->height;

	if (n_px > r->limits->max_px)
		return image_fail(err, IMAGE_E_LIMIT, "JPEG of %ux%u pixels; at most %llu pixels are read", h->width,
				  h->height, (unsigned long long)r->limits->max_px);
	if (n_px > SMALL_PX && n_px / PX_PER_BYTE > r->n_bytes)
		return image_fail(err, IMAGE_E_LIMIT, "JPEG of %ux%u pixels in only %zu bytes", h->width, h->height,
				  r->n_bytes);
	return 0;
}

/* Both calls into libjpeg start like this: their frame must stay while the jump is armed. */
static int jpeg_reader_read_header(struct jpeg_reader *r, struct image_error *err)
{
	r->err = err;
	r->finishing = false;
	if (setjmp(r->escape))
		return r->outcome;

	r->source.next_input_byte = r->bytes;
	r->source.bytes_in_buffer = r->n_bytes;
	while (jpeg_read_header(&r->cinfo, FALSE) == JPEG_HEADER_TABLES_ONLY)
		; /* a tables-only stream before the picture's own */
	if (r->cinfo.image_width != r->header.width || r->cinfo.image_height != r->header.height ||
	    r->cinfo.num_components != r->header.n_layers)
		return image_fail(err, IMAGE_E_CORRUPT, "damaged JPEG: two different frame headers");
	return 0;
}

int jpeg_reader_open(struct jpeg_reader *r, const uint8_t *bytes, size_t n_bytes, struct image_info *info,
		     struct image_error *err)
{
	jpeg_abort_decompress(&r->cinfo);
	jpeg_memory_forget_tables(&r->memory, &r->cinfo);
	r->bytes = bytes;
	r->n_bytes = n_bytes;
	r->n_index_bytes = 0;
	r->wants_pack = false;
	r->pack = NULL;
	r->index_use = INDEX_OTHER;
	r->shrink = 1;
	cpu_budget_begin(&r->budget, r->limits->max_ns);

	int outcome = jpeg_header_read(bytes, n_bytes, &r->joined, &r->header, err);
	if (outcome == 0)
		outcome = jpeg_reader_check_size(r, err);
	if (outcome == 0)
		outcome = jpeg_reader_read_header(r, err);
	if (outcome)
		return outcome;
	info->width = r->header.width;
	info->height = r->header.height;
	info->orientation = r->header.orientation;
	info->numbers = r->header.n_layers == 1 ? NUMBERS_UINT8 : NUMBERS_NONE;
	return 0;
}

void jpeg_reader_draft(struct jpeg_reader *r, uint32_t width, uint32_t height, struct image_info *info)
{
	uint32_t across = r->header.width / width, down = r->header.height / height;

	r->shrink = 8;
	while (r->shrink > 1 && (across < r->shrink || down < r->shrink))
		r->shrink /= 2;
	info->width = (r->header.width + r->shrink - 1) / r->shrink;
	info->height = (r->header.height + r->shrink - 1) / r->shrink;
}

/* Pillow's CMYK to RGB, on the file's values: it treats every four-layer JPEG as inverted, as Adobe writes them. In
 * place. */
static void cmyk_to_rgb(uint8_t *row, uint32_t n_px)
{
	const uint8_t *in = row;
	uint8_t *out = row;

	for (uint32_t i = 0; i < n_px; i++, in += 4, out += 3) {
		uint32_t paper = in[3]; /* 255 - K */

		for (int c = 0; c < 3; c++) {
			uint32_t t = (255u - in[c]) * paper + 128;

			out[c] = (uint8_t)(paper - (((t >> 8) + t) >> 8));
		}
	}
}

static void jpeg_reader_read_rows(struct jpeg_reader *r, uint8_t *to, size_t stride_bytes, uint32_t n_rows)
{
	j_decompress_ptr cinfo = &r->cinfo;
	uint32_t done = 0;

	while (done < n_rows) {
		JSAMPROW rows[ROWS_AT_ONCE];
		uint32_t n = n_rows - done < ROWS_AT_ONCE ? n_rows - done : ROWS_AT_ONCE;

		for (uint32_t i = 0; i < n; i++)
			rows[i] = to + (done + i) * stride_bytes;
		n = jpeg_read_scanlines(cinfo, rows, n);
		for (uint32_t i = 0; i < n && cinfo->out_color_space == JCS_CMYK; i++)
			cmyk_to_rgb(rows[i], cinfo->output_width);
		done += n;
	}
}

/* A progressive picture whose data end before the last scan: libjpeg smooths its coarse blocks. That needs their
 * neighbours on all sides and goes wrong when rows or columns are left out. */
static bool is_smoothed(j_decompress_ptr cinfo)
{
	if (!cinfo->progressive_mode || !cinfo->coef_bits)
		return false;
	for (int c = 0; c < cinfo->num_components; c++)
		for (int k = 0; k < DCTSIZE2; k++)
			if (cinfo->coef_bits[c][k] != 0)
				return true;
	return false;
}

/* libjpeg leaves rows and columns out of pictures in full size only. */
static bool reads_all(j_decompress_ptr cinfo)
{
	return cinfo->scale_num != cinfo->scale_denom || is_smoothed(cinfo);
}

/* Decodes the rest into `spare`, a row, only for its errors. */
static void read_to_end(struct jpeg_reader *r, uint8_t *spare)
{
	j_decompress_ptr cinfo = &r->cinfo;

	/* Skipping to the very end would leave the data unread; the last row makes libjpeg read all of it. */
	if (reads_all(cinfo))
		jpeg_reader_read_rows(r, spare, 0, cinfo->output_height - cinfo->output_scanline);
	else if (cinfo->output_height - cinfo->output_scanline > 1)
		(void)jpeg_skip_scanlines(cinfo, cinfo->output_height - cinfo->output_scanline - 1);
	if (cinfo->output_scanline < cinfo->output_height)
		jpeg_reader_read_rows(r, spare, 0, 1);
	r->finishing = true;
	(void)jpeg_finish_decompress(cinfo);
}

/* Whether the file after the wanted rows has nothing that makes Pillow refuse the picture. */
static bool tail_is_harmless(const struct jpeg_reader *r)
{
	if (r->cinfo.unread_marker != 0)
		return r->cinfo.unread_marker == JPEG_EOI;
	return jpeg_tail_is_plain(r->source.next_input_byte, r->bytes + r->n_bytes);
}

/* The columns to request from libjpeg. */
static void crop_columns(j_decompress_ptr cinfo, struct region_px want, JDIMENSION *x, JDIMENSION *width)
{
	uint32_t end = want.x + want.width;

	*x = 0;
	*width = cinfo->output_width;
	if (reads_all(cinfo))
		return;
	*x = want.x > MARGIN_LEFT ? want.x - MARGIN_LEFT : 0;
	end = cinfo->output_width - end > MARGIN_RIGHT ? end + MARGIN_RIGHT : cinfo->output_width;
	*width = end - *x;
	if (*width < cinfo->output_width)
		jpeg_crop_scanline(cinfo, x, width);
}

static int jpeg_reader_decode(struct jpeg_reader *r, struct region_px want, struct scratch *pixels, struct image *out,
			      struct image_error *err)
{
	j_decompress_ptr cinfo = &r->cinfo;
	JDIMENSION x, width;

	r->err = err;
	if (setjmp(r->escape))
		return r->outcome;

	bool several_scans = jpeg_has_multiple_scans(cinfo);
	cinfo->out_color_space = cinfo->num_components == 4 ? JCS_CMYK : JCS_RGB;
	cinfo->scale_num = 1;
	cinfo->scale_denom = r->shrink;
	(void)jpeg_start_decompress(cinfo); /* never suspends: see source_fill */
	crop_columns(cinfo, want, &x, &width);

	size_t stride = ((size_t)width * (size_t)cinfo->output_components + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
	uint8_t *to = scratch_reserve(pixels, stride * (want.height + 1)); /* and a spare row */
	if (!to)
		return -ENOMEM;
	*out = (struct image){ to + (size_t)(want.x - x) * 3, stride, want.width, want.height };

	uint8_t *spare = to + stride * want.height;

	if (reads_all(cinfo))
		jpeg_reader_read_rows(r, spare, 0, want.y);
	else if (want.y > 0)
		(void)jpeg_skip_scanlines(cinfo, want.y);
	jpeg_reader_read_rows(r, to, stride, want.height);
	if (!several_scans && !tail_is_harmless(r))
		read_to_end(r, spare);
	return 0;
}

/* A pack that takes more memory than this many times the data is not worth keeping. One of a baseline picture is not
 * tried of large pictures, whose coefficients take much memory, nor of strongly compressed ones: each block has
 * some bytes in a pack that it does not have in the data. */
enum { PACK_MOST_TIMES = 3, BASELINE_PACK_MOST_PX = 1 << 22, PACK_BLOCK_BYTES = 4 };

/* Whether a pack of all rows would be kept, as far as the rows of this one show. */
static bool fits_whole(const struct block_pack *pack, size_t n_data)
{
	return (uint64_t)pack->n_bytes * pack->mcu_rows / pack->n_rows <= (uint64_t)n_data * PACK_MOST_TIMES;
}

/* Whether another way may decode the same rectangle. */
static bool may_try_again(const struct jpeg_reader *r, int outcome)
{
	return outcome == SCAN_E_UNSURE && !scan_sink_has_rows(r->scan);
}

/* A picture of which a pack is wanted a second time is decoded to its end, so that it need not be a third time. */
static int decode_progressive(struct jpeg_reader *r, struct region_px want, struct image *out)
{
	size_t n = r->source.bytes_in_buffer;
	int outcome = r->pack ? scan_packed_region(r->scan, &r->cinfo, r->pack, want, out) : SCAN_E_UNSURE;

	if (!may_try_again(r, outcome))
		return outcome;
	outcome = scan_progressive_region(r->scan, &r->cinfo, r->source.next_input_byte, n, r->limits->max_scans,
					  &r->budget, r->pack && r->wants_pack && fits_whole(r->pack, n), want, out);
	if (outcome == 0 && r->wants_pack)
		r->n_index_bytes = scan_pack(r->scan, r->scan_id, n * PACK_MOST_TIMES, &r->index);
	return outcome;
}

/* The index becomes the known states again, marked so that no later epoch tries a pack. */
static void keep_without_pack(struct jpeg_reader *r)
{
	struct checkpoints *x = (struct checkpoints *)(void *)scratch_reserve(&r->index, r->n_known);

	r->n_index_bytes = x ? r->n_known : 0;
	if (!x)
		return;
	memcpy(x, r->known, r->n_known);
	x->no_pack = 1;
}

/* Packs all blocks that were decoded. A pack that is too large will be in every epoch; memory may suffice later. */
static void pack_baseline(struct jpeg_reader *r, size_t n_data)
{
	r->n_index_bytes = scan_pack(r->scan, r->scan_id, n_data * PACK_MOST_TIMES, &r->index);
	if (r->n_index_bytes == 0 && r->index.data) /* too large; without `data` memory was short */
		keep_without_pack(r);
}

/* A picture of which a pack is wanted is decoded to its end; if that fails, the rectangle alone may still be fine. */
static int decode_baseline(struct jpeg_reader *r, struct region_px want, struct image *out)
{
	const uint8_t *data = r->source.next_input_byte;
	size_t n = r->source.bytes_in_buffer;
	int outcome = SCAN_E_UNSURE;

	if (r->pack)
		outcome = scan_packed_region(r->scan, &r->cinfo, r->pack, want, out);
	if (!may_try_again(r, outcome))
		return outcome;
	if (r->wants_pack) {
		r->index_use = INDEX_MADE; /* even if there is none: the time is spent */
		outcome = scan_whole_region(r->scan, &r->cinfo, data, n, want, out);
		/* A draft may be unsure for its shape, so it says nothing of the data. */
		const bool damaged = outcome == SCAN_E_UNSURE && r->shrink == 1;
		r->wants_pack = outcome == 0 || damaged;
		if (outcome == 0)
			pack_baseline(r, n);
		else if (damaged)
			keep_without_pack(r);
	}
	if (outcome == 0 || scan_sink_has_rows(r->scan))
		return outcome;
	struct checkpoints *index = r->n_index_bytes ? (struct checkpoints *)(void *)r->index.data : NULL;
	return scan_region(r->scan, &r->cinfo, data, n, r->scan_id, index, index, want, out);
}

/* The same by the decoder of scan.h, for plain files. Returns SCAN_E_UNSURE when libjpeg must decide. */
static int decode_quickly(struct jpeg_reader *r, struct region_px want, struct row_sink *sink, struct scratch *pixels,
			  struct image *out)
{
	size_t stride = ((size_t)want.width * 3 + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
	size_t n_bytes = sink ? stride * ROW_SINK_BAND + ROW_SINK_SLACK_BYTES : stride * want.height;

	const bool progressive = scan_supported_progressive(&r->cinfo);
	if (!progressive && !scan_supported(&r->cinfo))
		return SCAN_E_UNSURE;
	uint8_t *to = scratch_reserve(pixels, n_bytes);
	if (!to)
		return -ENOMEM;
	*out = (struct image){ to, stride, want.width, want.height };
	scan_shrink(r->scan, r->shrink);
	scan_set_sink(r->scan, sink);
	return progressive ? decode_progressive(r, want, out) : decode_baseline(r, want, out);
}

/* The pack of a progressive picture is read where it is: it is as large as the file. */
static void want_pack(struct jpeg_reader *r, const void *known, size_t n_bytes, bool large)
{
	const struct block_pack *pack = known;

	if (!known && !large)
		return;
	r->wants_pack = large;
	r->scan_id = scan_progressive_id(&r->cinfo, r->source.next_input_byte, r->source.bytes_in_buffer);
	if (known && block_pack_valid(pack, n_bytes) && pack->scan_id == r->scan_id)
		r->pack = pack;
}

/* Whether a pack is likely to be kept. All coefficients are in memory while it is made. */
static bool may_pack_baseline(const struct jpeg_reader *r)
{
	uint64_t n_px = (uint64_t)r->header.width * r->header.height;
	uint64_t n_blocks = n_px * (r->header.n_layers == 1 ? 1 : 3) / DCTSIZE2; /* without subsampling */

	return n_px <= BASELINE_PACK_MOST_PX && n_blocks * PACK_BLOCK_BYTES <= r->source.bytes_in_buffer;
}

/* The index is completed in the reader's own copy: other threads may read the cache's. */
static void want_checkpoints(struct jpeg_reader *r, const void *known, size_t n_bytes, bool dear)
{
	size_t n_scan = r->source.bytes_in_buffer, size = checkpoints_size(&r->cinfo, n_scan);
	r->scan_id = scan_id(&r->cinfo, r->source.next_input_byte, n_scan);
	if (known && block_pack_valid(known, n_bytes) && ((const struct block_pack *)known)->scan_id == r->scan_id) {
		r->pack = known;
		r->index_use = INDEX_USED;
		return;
	}
	struct checkpoints *x = (struct checkpoints *)(void *)scratch_reserve(&r->index, size);
	if (!x)
		return;
	checkpoints_init(x, &r->cinfo, n_scan, r->scan_id);
	if (known && n_bytes == size && checkpoints_valid(known, n_bytes) &&
	    ((const struct checkpoints *)known)->scan_id == r->scan_id) {
		memcpy(x, known, size);
		r->known = known;
		r->n_known = size;
		r->wants_pack = dear && !x->no_pack && may_pack_baseline(r);
		r->index_use = INDEX_MISSING;
	}
	r->n_index_bytes = size;
	r->index_rows = checkpoints_rows_known(x);
}

void jpeg_reader_want_index(struct jpeg_reader *r, const void *known, size_t n_bytes, enum index_effort most)
{
	r->n_index_bytes = 0;
	if (r->bytes && scan_supported(&r->cinfo))
		want_checkpoints(r, known, n_bytes, most == INDEX_DEAR);
	else if (r->bytes && scan_supported_progressive(&r->cinfo))
		want_pack(r, known, n_bytes, most >= INDEX_LARGE);
}

enum index_use jpeg_reader_index_use(const struct jpeg_reader *r)
{
	return r->index_use;
}

const void *jpeg_reader_index(const struct jpeg_reader *r, size_t *n_bytes)
{
	const void *index = r->index.data;
	if (!r->n_index_bytes || (!r->wants_pack && checkpoints_rows_known(index) <= r->index_rows))
		return NULL;
	*n_bytes = r->n_index_bytes;
	return index;
}

int jpeg_reader_region(struct jpeg_reader *r, struct region_px want, struct row_sink *sink, struct scratch *pixels,
		       struct image *out, struct image_error *err)
{
	int outcome = decode_quickly(r, want, sink, pixels, out);

	if (outcome == SCAN_E_UNSURE)
		outcome = jpeg_reader_decode(r, want, pixels, out, err);
	else if (sink)
		out->rgb = NULL;

	jpeg_abort_decompress(&r->cinfo); /* frees the picture's memory, whatever the outcome */
	return outcome;
}
