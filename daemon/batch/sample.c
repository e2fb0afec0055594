/* See sample.h. Caches are tried in the order of what they save: pixels after the deterministic prefix, then the file's
 * bytes, then an index into them. An entry is used only while the file on disk is still the one it was made from (and
 * the client may read it), which costs one system call. */
#include "batch/sample.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

#include "batch/filling.h"
#include "dataset/file.h"
#include "dataset/cache/sample-cache.h"
#include "image/formats/decode.h"
#include "image/transform/random.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/trace.h"

enum {
	OPS_TIME = 2,               /* times that of decoding: what a transform may take */
	PROBES = 8,                 /* samples that are looked at to guess how large all of them are */
	KEEP_INPUT_BYTES = 1 << 20, /* of a file read ahead */
	NO_ROOM_PAUSE_MS = 10,
	TRACED_ROWS = 4, /* one row in so many is recorded with its stages */
};

struct sample_worker {
	struct decode_limits limits;
	struct workspace space, ahead; /* ahead: of the file that a probe reads, so that no worker waits for its disk */
	struct decoder *decoder;
	struct pipeline_worker *pipeline;
	struct file_bytes file;
	struct scratch row, rgb; /* of an array's picture */
	struct scratch gathered; /* pictures of a chunk: small, so that no user pays for them */
	struct filling filling;
	bool hurried;              /* a trainer waits for rows */
	bool fills_always;         /* then it never counts as hurried */
	bool only_crop;            /* the row in hand is not for the decoded cache */
	enum filling_row filled;   /* what became of the row in hand */
	enum index_use indexed;    /* likewise */
	size_t unfit_bytes;        /* of the last picture, if the decoded cache had no room for it */
	uint32_t n_made;           /* rows, to choose those that are recorded */
	uint64_t read_bytes;       /* of the row in hand, from a file by this worker */
	uint64_t decoded_bytes;    /* likewise, as the decoded cache would keep it; 0: not known */
	struct sample_spans spans; /* of the row in hand, or of the last */
};

void recipe_finish(struct recipe *r)
{
	cache_detach(r->indexes, r->uid);
	cache_detach(r->decoded, r->uid);
	dataset_unref(r->dataset);
	pipeline_destroy(r->pipeline);
	*r = (struct recipe){ 0 };
}

struct sample_worker *sample_worker_create(const struct decode_limits *limits)
{
	struct sample_worker *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->limits = *limits;
	w->space.of = limits->memory;
	w->ahead = (struct workspace){ .of = limits->memory, .ahead = true };
	w->decoder = decoder_create(&w->limits);
	w->pipeline = pipeline_worker_create();
	if (w->pipeline)
		pipeline_worker_limit(w->pipeline, OPS_TIME * limits->max_ns);
	if (w->decoder && w->pipeline)
		return w;
	sample_worker_destroy(w);
	return NULL;
}

void sample_worker_destroy(struct sample_worker *w)
{
	if (!w)
		return;
	decoder_destroy(w->decoder);
	pipeline_worker_destroy(w->pipeline);
	file_bytes_finish(&w->file);
	scratch_finish(&w->row);
	scratch_finish(&w->rgb);
	scratch_finish(&w->gathered);
	free(w);
}

uint64_t sample_most_ns(uint64_t image_ns)
{
	return image_ns + OPS_TIME * image_ns;
}

enum stage sample_worker_stage(const struct sample_worker *w)
{
	return (enum stage)atomic_load_explicit(&w->space.stage, memory_order_relaxed);
}

/* Whether there is an entry for the file in its current state; a stale entry is dropped. */
static bool is_cached(const struct recipe *r, struct cache_space *space, uint64_t index, struct file_bytes *current)
{
	struct cache_hit hit;
	if (!space || !cache_lookup(space, index, &hit))
		return false;
	if (dataset_is_current(r->dataset, index, READ_WAIT, &hit.file) <= 0) {
		cache_drop(space, index, &hit);
		return false;
	}
	*current = hit.file;
	cache_release(&hit);
	return true;
}

void sample_worker_hurry(struct sample_worker *w, bool hurried)
{
	w->hurried = hurried && !w->fills_always;
}

void sample_worker_fill_always(struct sample_worker *w)
{
	w->fills_always = true;
	w->hurried = false;
}

/* Frees all buffers of the worker, so that its next sample begins like its first one. */
static void sample_trim(struct sample_worker *w)
{
	decoder_trim(w->decoder);
	pipeline_worker_trim(w->pipeline);
	file_bytes_finish(&w->file);
	scratch_finish(&w->row);
	scratch_finish(&w->rgb);
}

static void sample_end_sample(struct sample_worker *w)
{
	if (w->space.holds || w->space.refused_bytes || w->space.used_bytes > w->limits.keep_bytes)
		sample_trim(w);
	workspace_leave(&w->space);
}

struct sample_input *sample_input_create(const struct decode_limits *limits)
{
	struct sample_input *in = calloc(1, sizeof(*in));
	if (in)
		in->space = (struct workspace){ .of = limits->memory, .ahead = true };
	return in;
}

void sample_input_destroy(struct sample_input *in)
{
	file_bytes_finish(&in->bytes);
	free(in);
}

void sample_input_drop(struct sample_input *in)
{
	if (in->bytes.capacity_bytes > KEEP_INPUT_BYTES)
		file_bytes_finish(&in->bytes);
}

/* On a file system that a server provides, no worker may read instead of an I/O thread. So a file for which there is no
 * room now is fetched again a moment later; a file for which there can never be room is bad. */
static int find_no_room(const struct recipe *r, uint64_t index, struct sample_input *in)
{
	const struct timespec pause = { .tv_nsec = NO_ROOM_PAUSE_MS * 1000000 };
	char name[256], need[32], have[32];
	in->later = true;
	if (!dataset_server(r->dataset))
		return 0;
	if (in->space.refused_bytes <= in->space.of->ahead_bytes) {
		nanosleep(&pause, NULL);
		return 0;
	}
	in->later = false;
	dataset_name(r->dataset, index, name, sizeof(name));
	in->error.code = DATASET_E_BAD_DATA;
	snprintf(
		in->error.text, sizeof(in->error.text),
		"%s: takes %s, and there is %s for files read ahead from network and FUSE file systems (a sixty-fourth of "
		"memory in the daemon's configuration): raise memory, or copy the data to a local disk",
		name, size_format(in->space.refused_bytes, need, sizeof(need)),
		size_format(in->space.of->ahead_bytes, have, sizeof(have)));
	return -EFBIG;
}

static int read_ahead(const struct recipe *r, uint64_t index, struct sample_input *in)
{
	workspace_enter(&in->space, r->uid);
	int result = dataset_read(r->dataset, index, READ_WAIT, &in->bytes, &in->error);
	if (result == -ENOMEM && in->space.refused_bytes)
		result = find_no_room(r, index, in);
	workspace_leave(&in->space);
	return result;
}

/* Of a pixel. */
static size_t decoded_bytes(const struct recipe *r)
{
	return pixel_bytes(pipeline_pixel(r->pipeline));
}

static bool has_pixels(const struct recipe *r)
{
	return !dataset_is_image(r->dataset);
}

/* Other fields are gathered when the row is made: see pool/rows.c. */
static int gather_picture(const struct recipe *r, uint64_t index, void *to, struct dataset_error *err)
{
	void *rows[DATASET_MAX_FIELDS] = { to };
	return dataset_gather(r->dataset, &index, 1, rows, err);
}

static int fetch_picture(const struct recipe *r, uint64_t index, struct sample_input *in)
{
	workspace_enter(&in->space, r->uid);
	int result = file_bytes_reserve(&in->bytes, pixels_bytes(&r->pixels));
	if (result == 0)
		result = gather_picture(r, index, in->bytes.data, &in->error);
	else if (in->space.refused_bytes)
		result = find_no_room(r, index, in);
	workspace_leave(&in->space);
	return result;
}

void sample_fetch(const struct recipe *r, uint64_t index, struct sample_input *in)
{
	if (has_pixels(r)) {
		in->checked = in->must_read = in->later = false;
		in->result = fetch_picture(r, index, in);
		return;
	}
	in->checked = !in->must_read && is_cached(r, r->decoded, index, &in->current);
	in->must_read = in->later = false;
	in->result = in->checked ? 0 : read_ahead(r, index, in);
}

static int sample_bad(const struct recipe *r, uint64_t index, const char *why, struct sample_error *err)
{
	char name[256] = "";
	if (r->dataset)
		dataset_name(r->dataset, index, name, sizeof(name));
	size_t n = strlen(name);
	/* Errors of opening files already contain the name. */
	bool is_named = !n || (!strncmp(why, name, n) && why[n] == ':');
	snprintf(err->text, sizeof(err->text), "%s%s%s", is_named ? "" : name, is_named ? "" : ": ", why);
	err->slow = err->outside = false;
	return SAMPLE_E_BAD;
}

/* A file that may not be read is sound, for all that is known. */
static int bad_read(const struct recipe *r, uint64_t index, const struct dataset_error *why, struct sample_error *err)
{
	(void)sample_bad(r, index, why->text, err);
	err->outside = why->code == DATASET_E_ACCESS;
	return SAMPLE_E_BAD;
}

static int bad_image(const struct recipe *r, uint64_t index, int outcome, const char *why, struct sample_error *err)
{
	(void)sample_bad(r, index, why, err);
	err->slow = err->outside = outcome == IMAGE_E_TIME;
	return SAMPLE_E_BAD;
}

/* For a sample that alone needs more than a whole workspace: there would never be room for it. */
static int too_large(const struct recipe *r, const struct sample_worker *w, uint64_t index, struct sample_error *err)
{
	char text[400], need[32], have[32];
	size_format(w->space.refused_bytes, need, sizeof(need));
	size_format(w->limits.memory->reserve_bytes, have, sizeof(have));
	snprintf(
		text, sizeof(text),
		"needs at least %s of memory to decode and transform, and there is %s for one image (three sixteenths of "
		"memory in the daemon's configuration): make the image smaller, or raise memory",
		need, have);
	(void)sample_bad(r, index, text, err);
	err->outside = true;
	return SAMPLE_E_BAD;
}

/* A decoded cache saves more than dear indexes would. */
static enum index_effort index_effort(const struct recipe *r, struct sample_worker *w, uint64_t n_bytes)
{
	if (!cache_has_ample_room(r->indexes, n_bytes))
		return INDEX_SMALL;
	return !r->decoded && filling_may(&w->filling, r->indexes, w->hurried) ? INDEX_DEAR : INDEX_LARGE;
}

/* Decodes what the crop needs, using the index that an earlier epoch made of the file. */
static int run_with_index(const struct recipe *r, struct sample_worker *w, struct sample_key key,
			  const struct file_bytes *file, const struct image_info *info, void *const rows[],
			  struct image_error *why)
{
	struct cache_hit hit;
	bool known = r->indexes && cache_lookup_for(r->indexes, key.index, file, &hit);
	if (r->indexes)
		decoder_want_index(w->decoder, known ? hit.index : NULL, known ? hit.n_index_bytes : 0,
				   index_effort(r, w, file->n_bytes));
	int result = views_run(r->pipeline, w->pipeline, w->decoder, info, key, rows, why);
	if (known)
		cache_release(&hit);
	size_t n;
	const void *learnt = result == 0 && r->indexes ? decoder_index(w->decoder, &n) : NULL;
	if (learnt)
		cache_put_index(r->indexes, key.index, file, learnt, n);
	w->indexed = r->indexes ? decoder_index_use(w->decoder) : INDEX_OTHER;
	return result;
}

/* Decodes the output of the deterministic prefix, caches it, and makes the row from it. */
static int run_and_keep(const struct recipe *r, struct sample_worker *w, struct sample_key key,
			const struct file_bytes *file, const struct image_info *info, void *const rows[],
			struct image_error *why)
{
	struct image prefix;
	int result = pipeline_prefix(r->pipeline, w->pipeline, w->decoder, info, &prefix, why);
	if (result)
		return result;
	cache_put_pixels(r->decoded, key.index, file,
			 &(struct cache_pixels){ prefix.rgb, prefix.stride_bytes, prefix.width, prefix.height },
			 decoded_bytes(r));
	return views_resume(r->pipeline, w->pipeline, &prefix, key, rows, why);
}

/* ---- what a recording shows of a row ---- */

static void begin_spans(struct sample_worker *w)
{
	w->spans.began_ns = 0;
	if (!trace_is_on() || w->n_made % TRACED_ROWS)
		return;
	memset(w->space.stage_ns, 0, sizeof(w->space.stage_ns));
	w->space.stage_began_ns = w->spans.began_ns = clock_now_ns();
}

/* Working memory is waited for while a picture is decoded, mostly. */
static void end_spans(struct sample_worker *w)
{
	const uint64_t *ns = w->space.stage_ns;
	workspace_stage(STAGE_NONE);
	w->spans.ended_ns = w->space.stage_began_ns;
	w->spans.read_ns = ns[STAGE_READ];
	w->spans.decode_ns = ns[STAGE_DECODE] + ns[STAGE_MEMORY];
}

const struct sample_spans *sample_spans(const struct sample_worker *w)
{
	return w->spans.began_ns ? &w->spans : NULL;
}

uint64_t sample_decoded_bytes(const struct sample_worker *w)
{
	return w->decoded_bytes;
}

uint64_t sample_read_bytes(const struct sample_worker *w)
{
	return w->read_bytes;
}

uint64_t sample_fetched_bytes(const struct sample_input *in)
{
	return in->result || in->checked || in->later ? 0 : in->bytes.n_bytes;
}

static int make_from_bytes(const struct recipe *r, struct sample_worker *w, struct sample_key key,
			   const struct file_bytes *file, void *const rows[], struct sample_error *err)
{
	struct image_info info;
	struct image_error why;
	workspace_stage(STAGE_TRANSFORM);
	int result = pipeline_open(r->pipeline, w->decoder, file->data, file->n_bytes, r->apply_exif, &info, &why);
	if (result == 0) {
		if (!r->decoded)
			w->decoded_bytes = views_prefix_bytes(r->pipeline, w->pipeline, info.width, info.height);
		size_t n_bytes = (size_t)info.width * info.height * decoded_bytes(r);
		bool fits = r->decoded && !w->only_crop && cache_has_room(r->decoded, n_bytes);
		bool keep = fits && filling_may(&w->filling, r->decoded, w->hurried);
		w->unfit_bytes = r->decoded && !w->only_crop && !fits ? n_bytes : 0;
		w->filled = keep ? FILLING_KEPT : FILLING_PLAIN;
		result = (keep ? run_and_keep : run_with_index)(r, w, key, file, &info, rows, &why);
	}
	decoder_close(w->decoder);
	return result > 0 ? bad_image(r, key.index, result, why.text, err) : result;
}

static bool is_same_file(const struct file_bytes *a, const struct file_bytes *b)
{
	return a->ino == b->ino && a->dev == b->dev && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
	       a->n_bytes == b->n_bytes;
}

/* 1: there is a current entry; 0: there is none (a stale one is dropped); -EAGAIN: only a thread that may wait can
 * tell. */
static int sample_look_up(const struct recipe *r, struct cache_space *space, uint64_t index,
			  const struct sample_input *in, bool may_wait, struct cache_hit *hit)
{
	if (!space || !cache_lookup(space, index, hit))
		return 0;
	int current = in ? is_same_file(&hit->file, &in->current)
			 : dataset_is_current(r->dataset, index, may_wait ? READ_WAIT : READ_NOWAIT, &hit->file);
	if (current == -EAGAIN)
		cache_release(hit);
	else if (!current)
		cache_drop(space, index, hit);
	return current;
}

static int make_from_pixels(const struct recipe *r, struct sample_worker *w, struct sample_key key,
			    struct cache_hit *hit, void *const rows[], struct sample_error *err)
{
	struct image_error why;
	struct image prefix = { hit->pixels.bytes, hit->pixels.stride_bytes, hit->pixels.width, hit->pixels.height };
	workspace_stage(STAGE_TRANSFORM);
	w->filled = FILLING_HIT;
	int result = views_resume(r->pipeline, w->pipeline, &prefix, key, rows, &why);
	cache_release(hit);
	return result > 0 ? bad_image(r, key.index, result, why.text, err) : result;
}

static int read_here(const struct recipe *r, struct sample_worker *w, uint64_t index, bool may_wait,
		     struct sample_error *err)
{
	struct dataset_error why;
	int result = dataset_read(r->dataset, index, READ_NOWAIT, &w->file, &why);
	if (result == -EAGAIN && !may_wait)
		return SAMPLE_E_WOULD_BLOCK;
	if (result == -EAGAIN)
		result = dataset_read(r->dataset, index, READ_WAIT, &w->file, &why);
	if (!result)
		w->read_bytes += w->file.n_bytes;
	return !result || result == -ENOMEM ? result : bad_read(r, index, &why, err);
}

/* The row is copied before it is used: a mapped file may shrink while ops work. */
static int make_from_array(const struct recipe *r, struct sample_worker *w, struct sample_key key,
			   const struct sample_input *in, void *const rows[], struct sample_error *err)
{
	const struct image_form *form = &r->pixels.form;
	struct dataset_error why;
	struct image_error image_why;
	int result = 0;
	if (dataset_server(r->dataset) && (!in || in->later))
		return SAMPLE_E_WOULD_BLOCK;
	if (in && in->result)
		return bad_read(r, key.index, &in->error, err);
	enum pixel pixel = pipeline_pixel(r->pipeline);
	uint8_t *memory = scratch_reserve(&w->rgb, (size_t)form->width * form->height * pixel_bytes(pixel));
	uint8_t *from = in ? (uint8_t *)in->bytes.data : scratch_reserve(&w->row, pixels_bytes(&r->pixels));
	if (!memory || !from)
		return -ENOMEM;
	if (!in)
		result = gather_picture(r, key.index, w->row.data, &why);
	if (result)
		return bad_read(r, key.index, &why, err);
	workspace_stage(STAGE_TRANSFORM);
	struct image image = pixels_image(&r->pixels, from, pixel, memory);
	bool gray = pixels_are_gray(&r->pixels, pixel);
	result = views_run_image(r->pipeline, w->pipeline, &image, gray, key, rows, &image_why);
	return result > 0 ? bad_image(r, key.index, result, image_why.text, err) : result;
}

static int sample_make_unless_bad(const struct recipe *r, struct sample_worker *w, struct sample_key key,
				  struct sample_input *in, bool may_wait, void *const rows[], struct sample_error *err)
{
	workspace_stage(STAGE_READ);
	if (has_pixels(r))
		return make_from_array(r, w, key, in, rows, err);
	uint64_t index = key.index;
	struct cache_hit hit;
	int found = 0;
	if (in && in->later) {
		/* A worker reads nothing that a server has to answer: the file is fetched again. */
		if (dataset_server(r->dataset))
			return SAMPLE_E_WOULD_BLOCK;
		in = NULL;
		may_wait = true;
	}
	if (in && in->result)
		return bad_read(r, index, &in->error, err);
	if (!in || in->checked) {
		found = sample_look_up(r, r->decoded, index, in, may_wait, &hit);
		if (found > 0)
			return make_from_pixels(r, w, key, &hit, rows, err);
	}
	if (in && in->checked) /* the entry has been evicted meanwhile */
		in->must_read = true;
	if (found < 0 || (in && in->checked))
		return SAMPLE_E_WOULD_BLOCK;
	int result = in ? 0 : read_here(r, w, index, may_wait, err);
	if (result)
		return result;
	return make_from_bytes(r, w, key, in ? &in->bytes : &w->file, rows, err);
}

/* Whether to try once more, with the room of buffers that earlier samples have left: they must not decide. kept: there
 * were any. */
static bool sample_makes_room(struct sample_worker *w, int result, bool kept)
{
	if (result != -ENOMEM || !w->space.refused_bytes || !kept)
		return false;
	sample_trim(w);
	w->space.refused_bytes = 0;
	return true;
}

/* Whether the row is to be made without the cache. A picture that is damaged below the crop, or for which as a whole
 * there is no memory, has rows as long as nothing keeps it; so it has them with a cache as well. Not if its time is
 * over: it would take as much again. */
static bool sample_fails_as_a_whole(const struct sample_worker *w, int result, const struct sample_error *err)
{
	if (w->filled != FILLING_KEPT)
		return false;
	return result == SAMPLE_E_BAD ? !err->slow : result == -ENOMEM && w->space.refused_bytes;
}

/* What the attempt took counts as spent on filling. */
static int sample_make_only_crop(const struct recipe *r, struct sample_worker *w, struct sample_key key,
				 struct sample_input *in, bool may_wait, void *const rows[], struct sample_error *err)
{
	sample_trim(w);
	w->space.refused_bytes = 0;
	w->only_crop = true;
	int result = sample_make_unless_bad(r, w, key, in, may_wait, rows, err);
	w->only_crop = false;
	w->filled = FILLING_KEPT;
	return result;
}

/* Whether time spent on filling matters. In a full cache it does not, and a row does not read the clock for it. */
static bool sample_weighs(const struct recipe *r, const struct sample_worker *w)
{
	if (!r->decoded)
		return r->indexes && cache_has_ample_room(r->indexes, 0);
	return !w->unfit_bytes || cache_has_room(r->decoded, w->unfit_bytes);
}

static void note_filling(const struct recipe *r, struct sample_worker *w, uint64_t ns)
{
	static const enum filling_row rows[] = {
		[INDEX_MISSING] = FILLING_PLAIN, [INDEX_MADE] = FILLING_KEPT, [INDEX_USED] = FILLING_HIT
	};
	if (r->decoded)
		filling_note(&w->filling, r->decoded, w->filled, ns, FILLING_PART_DECODED);
	else
		filling_note(&w->filling, r->indexes, rows[w->indexed], ns, FILLING_PART_PACKS);
}

int sample_make(const struct recipe *r, struct sample_worker *w, struct sample_key key, struct sample_input *in,
		bool may_wait, void *const rows[], struct sample_error *err)
{
	workspace_enter(&w->space, r->uid);
	bool kept = w->space.used_bytes > 0;
	begin_spans(w);
	w->read_bytes = w->decoded_bytes = 0;
	w->indexed = INDEX_OTHER;
	w->filled = FILLING_PLAIN;
	bool weighs = sample_weighs(r, w);
	uint64_t began_ns = weighs ? clock_now_ns() : 0;
	int result = sample_make_unless_bad(r, w, key, in, may_wait, rows, err);
	if (sample_makes_room(w, result, kept))
		result = sample_make_unless_bad(r, w, key, in, may_wait, rows, err);
	if (sample_fails_as_a_whole(w, result, err))
		result = sample_make_only_crop(r, w, key, in, may_wait, rows, err);
	if (result == -ENOMEM && w->space.refused_bytes)
		result = too_large(r, w, key.index, err);
	w->n_made += result == 0;
	if (result == 0 && (r->decoded || w->indexed != INDEX_OTHER))
		note_filling(r, w, weighs ? clock_now_ns() - began_ns : 0);
	if (w->spans.began_ns)
		end_spans(w);
	sample_end_sample(w);
	return result;
}

const uint8_t *sample_gather(const struct recipe *r, struct sample_worker *w, const uint64_t *indices, uint32_t n,
			     void *const rows[])
{
	void *all[DATASET_MAX_FIELDS];
	struct dataset_error err;
	assert(has_pixels(r) && !dataset_server(r->dataset) && !w->space.holds);
	memcpy(all, rows, sizeof(all));
	all[0] = scratch_reserve(&w->gathered, n * pixels_bytes(&r->pixels));
	return all[0] && dataset_gather(r->dataset, indices, n, all, &err) == 0 ? all[0] : NULL;
}

int sample_make_gathered(const struct recipe *r, struct sample_worker *w, struct sample_key key, const uint8_t *picture,
			 void *const rows[], struct sample_error *err)
{
	struct sample_input in = { .bytes = { .data = (uint8_t *)picture } }; /* read only */
	return sample_make(r, w, key, &in, false, rows, err);
}

/* ---- images without a data set ---- */

static int make_from_memfd(const struct recipe *r, struct sample_worker *w, struct sample_key key, int fd,
			   uint64_t offset, uint64_t n_bytes, void *const rows[], struct sample_error *err)
{
	char text[200];
	int result = n_bytes > FILE_MAX_BYTES ? -EFBIG : file_read_at(fd, READ_WAIT, offset, (size_t)n_bytes, &w->file);
	if (result == -ENOMEM)
		return result;
	if (result == -EFBIG)
		snprintf(text, sizeof(text), "has %llu bytes; at most %llu are read", (unsigned long long)n_bytes,
			 (unsigned long long)FILE_MAX_BYTES);
	else if (result)
		snprintf(text, sizeof(text), "cannot read the client's memory: %s", strerror(-result));
	else if (w->file.n_bytes < n_bytes)
		snprintf(text, sizeof(text), "the client's memory has %zu of its %llu bytes", w->file.n_bytes,
			 (unsigned long long)n_bytes);
	else
		return make_from_bytes(r, w, key, &w->file, rows, err);
	return sample_bad(r, key.index, text, err);
}

int sample_make_at(const struct recipe *r, struct sample_worker *w, struct sample_key key, int fd, uint64_t offset,
		   uint64_t n_bytes, void *const rows[], struct sample_error *err)
{
	workspace_enter(&w->space, r->uid);
	bool kept = w->space.used_bytes > 0;
	int result = make_from_memfd(r, w, key, fd, offset, n_bytes, rows, err);
	if (sample_makes_room(w, result, kept))
		result = make_from_memfd(r, w, key, fd, offset, n_bytes, rows, err);
	if (result == -ENOMEM && w->space.refused_bytes)
		result = too_large(r, w, key.index, err);
	sample_end_sample(w);
	return result;
}

/* ---- which caches ---- */

/* Two loaders share pixels when the deterministic prefix and the EXIF handling are the same. */
static uint64_t prefix_id(const struct recipe *r)
{
	const char *text = pipeline_prefix_text(r->pipeline);
	return XXH3_64bits_withSeed(text, strlen(text), r->apply_exif);
}

/* From the header alone: an opening decodes nothing, and its thread waits for no memory. */
static uint64_t sample_probe(const struct recipe *r, struct sample_worker *w, uint64_t index)
{
	struct dataset_error why;
	struct image_error image_why;
	struct image_info info;
	uint64_t bytes = 0;
	workspace_enter(&w->ahead, r->uid);
	if (dataset_read(r->dataset, index, READ_WAIT, &w->file, &why) == 0 &&
	    pipeline_open(r->pipeline, w->decoder, w->file.data, w->file.n_bytes, r->apply_exif, &info, &image_why) ==
		    0)
		bytes = views_prefix_bytes(r->pipeline, w->pipeline, info.width, info.height);
	decoder_close(w->decoder);
	sample_trim(w);
	workspace_leave(&w->ahead);
	return bytes;
}

/* For all samples, estimated from a few evenly spread ones; 0 when none of these is an image. */
static uint64_t guess_decoded_bytes(const struct recipe *r, struct sample_worker *w)
{
	uint64_t n = dataset_n(r->dataset), sum = 0, n_good = 0;
	for (uint64_t i = 0; i < PROBES; i++) {
		uint64_t bytes = sample_probe(r, w, n / PROBES * i + i * (n % PROBES) / PROBES);
		sum += bytes;
		n_good += bytes > 0;
	}
	return n_good ? sum / n_good * n : 0;
}

int recipe_attach(struct recipe *r, struct cache *cache, uint64_t decoded_budget_bytes, bool choose_decoded,
		  const struct decode_limits *limits)
{
	uint64_t id = dataset_cache_id(r->dataset), n = dataset_n(r->dataset);
	bool decoded = decoded_budget_bytes > 0;
	if (decoded && choose_decoded) {
		struct sample_worker *w = sample_worker_create(limits);
		if (!w)
			return -ENOMEM;
		uint64_t guess = guess_decoded_bytes(r, w);
		decoded = guess > 0 && guess + guess / 8 < decoded_budget_bytes;
		sample_worker_destroy(w);
	}
	if (decoded)
		r->decoded = cache_attach(cache, id, n, CACHE_DECODED, prefix_id(r), r->uid);
	r->indexes = cache_attach(cache, id, n, CACHE_CHECKPOINTS, 0, r->uid);
	return 0;
}

uint64_t sample_substitute(uint64_t seed, uint64_t epoch, uint64_t index, unsigned attempt, uint64_t n)
{
	enum { FIRST_OP = 192 }; /* beyond every op of a pipeline */
	struct random random;
	random_init(&random, (struct sample_key){ seed, epoch, index }, FIRST_OP + attempt % 64);
	uint64_t bits = (uint64_t)random_bits(&random) << 32 | random_bits(&random);
	return (uint64_t)(((unsigned __int128)bits * n) >> 64);
}
