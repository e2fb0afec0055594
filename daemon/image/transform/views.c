/* Reads views, and makes them: first every pipeline runs until it needs pixels and notes which, then these are decoded
 * once, and every pipeline runs again. The second run draws the same numbers, because they depend on keys alone. */
#include "image/transform/views.h"

#include <errno.h>
#include <stdarg.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/transform/pipeline-impl.h"

/* ---- parsing ---- */

struct views_reader {
	const struct image_form *source;
	enum dtype dtype;
	enum layout layout;
	struct pipeline *at[VIEWS_MAX];
	unsigned n;
	size_t text_bytes; /* of all specs */
	struct pipeline_error *err;
};

static int views_fail(struct views_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int views_fail(struct views_reader *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->err->text, sizeof(r->err->text), format, args);
	va_end(args);
	for (char *c = r->err->text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' '; /* messages go into logs */
	return -EINVAL;
}

static int check_name(struct views_reader *r, const char *name)
{
	if (strlen(name) >= sizeof(r->at[0]->name))
		return views_fail(r, "the view '%.40s...' has a name of more than %zu bytes", name,
				  sizeof(r->at[0]->name) - 1);
	for (const char *c = name; *c; c++)
		if (*c <= ' ' || *c > '~' || strchr("\"',\\", *c))
			return views_fail(r,
					  "the view '%.63s' has a name with other characters than printable ASCII "
					  "without space, quote, comma, backslash",
					  name);
	for (unsigned k = 0; k < r->n; k++)
		if (strcmp(r->at[k]->name, name) == 0)
			return views_fail(r, "two views have the name '%s'", name);
	return 0;
}

/* The text of one pipeline for pipeline_parse; the caller frees it. */
static char *text_of(const json_t *pipeline)
{
	return json_is_string(pipeline) ? strdup(json_string_value(pipeline))
					: json_dumps(pipeline, JSON_COMPACT | JSON_REAL_PRECISION(17));
}

static int add_view(struct views_reader *r, const char *name, const json_t *pipeline)
{
	struct pipeline_error why = { .text = "" };
	struct pipeline *p;
	char *text;
	int rc = check_name(r, name);

	if (rc != 0)
		return rc;
	if (r->n == VIEWS_MAX)
		return views_fail(r, "an image can have %d views at most", VIEWS_MAX);
	if (!json_is_string(pipeline) && !json_is_array(pipeline))
		return views_fail(r, "the view '%s' is no pipeline: it is \"train224\", \"val224\" or a list of ops",
				  name);
	text = text_of(pipeline);
	if (!text)
		return -ENOMEM;
	rc = pipeline_parse_for(text, r->source, r->dtype, r->layout, &p, &why);
	free(text);
	if (rc == -EINVAL)
		return views_fail(r, "view '%s': %.420s", name, why.text);
	if (rc != 0)
		return rc;
	snprintf(p->name, sizeof(p->name), "%s", name);
	spec_set_view(&p->spec, r->n);
	r->at[r->n++] = p;
	r->text_bytes += strlen(p->spec.text);
	if (r->text_bytes > VIEWS_MAX_TEXT_BYTES)
		return views_fail(
			r, "the views have too many ops: written with every default they take more than %d bytes",
			VIEWS_MAX_TEXT_BYTES);
	return 0;
}

static int add_numbered(struct views_reader *r, const char *name, unsigned number, const json_t *pipeline)
{
	char numbered[80];

	if (strlen(name) > 60)
		return views_fail(r, "the views '%.40s...' have a name of more than 60 bytes", name);
	snprintf(numbered, sizeof(numbered), number ? "%s.%u" : "%s", name, number);
	return add_view(r, numbered, pipeline);
}

/* {"views": [pipeline, ...], "n": k} */
static int add_list(struct views_reader *r, const char *name, json_t *given)
{
	json_t *list = json_object_get(given, "views"), *n = json_object_get(given, "n");
	size_t n_list = json_array_size(list), times = n ? (size_t)json_integer_value(n) : 1;
	int rc = 0;

	if (!n_list || n_list > VIEWS_MAX || (n && !json_is_integer(n)) || times < 1 || times > VIEWS_MAX ||
	    json_object_size(given) != (n ? 2 : 1))
		return views_fail(r, "the views '%.63s' are given as {\"views\": [1 to %d pipelines], \"n\": 1 to %d}",
				  name, VIEWS_MAX, VIEWS_MAX);
	for (size_t i = 0; rc == 0 && i < times * n_list; i++)
		rc = add_numbered(r, name, (unsigned)i, json_array_get(list, i % n_list));
	return rc;
}

/* They are made of one image, which is decoded once. */
static int check_modes(struct views_reader *r)
{
	for (unsigned k = 1; k < r->n; k++)
		if (r->at[k]->spec.form.pixel != r->at[0]->spec.form.pixel)
			return views_fail(r, "all views must convert to the same mode: the views '%s' and '%s' do not",
					  r->at[0]->name, r->at[k]->name);
	return 0;
}

/* And it is read once, in one size: the largest that a view without a size of its own wants. */
static int check_drafts(struct views_reader *r)
{
	struct draft all = r->at[0]->spec.draft;
	int rc = 0;

	for (unsigned k = 1; k < r->n; k++) {
		const struct draft *d = &r->at[k]->spec.draft;

		if (d->wanted != all.wanted || d->own_size != all.own_size ||
		    (!d->own_size && (d->width != all.width || d->height != all.height)))
			return views_fail(r, "all views must begin with the same Draft: the views '%s' and '%s' do not",
					  r->at[0]->name, r->at[k]->name);
		all.width = d->width > all.width ? d->width : all.width;
		all.height = d->height > all.height ? d->height : all.height;
	}
	for (unsigned k = 0; rc == 0 && all.own_size && k < r->n; k++)
		rc = spec_set_draft(&r->at[k]->spec, all.width, all.height);
	return rc;
}

static int check_pixels(struct views_reader *r)
{
	uint64_t n = 0;

	for (unsigned k = 0; k < r->n; k++)
		n += (uint64_t)r->at[k]->spec.form.width * r->at[k]->spec.form.height;
	if (n > VIEWS_MAX_PIXELS)
		return views_fail(r, "the views of an image would have %llu pixels together; at most %d are allowed",
				  (unsigned long long)n, VIEWS_MAX_PIXELS);
	return 0;
}

/* One decoded image is cached for all views: it is behind the ops that they have in common, if these are all of their
 * deterministic ones. */
static int share_prefix(struct views_reader *r)
{
	bool same = true;
	int rc = 0;

	for (unsigned k = 1; k < r->n; k++)
		same &= strcmp(r->at[k]->spec.prefix_text, r->at[0]->spec.prefix_text) == 0;
	for (unsigned k = 0; rc == 0 && !same && k < r->n; k++)
		rc = spec_drop_prefix(&r->at[k]->spec);
	return rc;
}

/* {"NAME": [op, ...], ...}: views_parse reads it as the same views. */
static char *write_views(const struct views_reader *r)
{
	json_t *all = json_object();
	char *text = NULL;
	bool ok = all != NULL;

	for (unsigned k = 0; ok && k < r->n; k++)
		ok = json_object_set_new(all, r->at[k]->name, json_loads(r->at[k]->spec.text, 0, NULL)) == 0;
	if (ok)
		text = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(all);
	return text;
}

static int join(struct views_reader *r, struct pipeline **out)
{
	struct pipeline *p = r->at[0];
	int rc = share_prefix(r);

	if (rc != 0)
		return rc;
	p->more = r->n > 1 ? malloc((r->n - 1) * sizeof(struct pipeline *)) : NULL;
	p->text = write_views(r);
	if ((r->n > 1 && !p->more) || !p->text)
		return -ENOMEM;
	p->n_more = r->n - 1;
	if (p->n_more)
		memcpy(p->more, r->at + 1, p->n_more * sizeof(*p->more));
	r->n = 0;
	*out = p;
	return 0;
}

static int views_read(struct views_reader *r, json_t *given, struct pipeline **out)
{
	const char *name;
	json_t *value;
	int rc = 0;

	json_object_foreach (given, name, value) {
		rc = json_is_object(value) ? add_list(r, name, value) : add_view(r, name, value);
		if (rc != 0)
			break;
	}
	if (rc == 0 && r->n == 0)
		rc = views_fail(r, "the views are an empty object: name at least one");
	if (rc == 0)
		rc = check_modes(r);
	if (rc == 0)
		rc = check_drafts(r);
	if (rc == 0)
		rc = check_pixels(r);
	if (rc == 0)
		rc = join(r, out);
	for (unsigned k = 0; k < r->n; k++)
		pipeline_destroy(r->at[k]);
	return rc;
}

int views_parse(const char *text, const struct image_form *source, enum dtype dtype, enum layout layout,
		struct pipeline **out, struct pipeline_error *err)
{
	struct views_reader r = { .source = source, .dtype = dtype, .layout = layout, .err = err };
	json_error_t why;
	json_t *given;
	int rc;

	if (text[strspn(text, " \t\r\n")] != '{')
		return pipeline_parse_for(text, source, dtype, layout, out, err);
	err->text[0] = '\0';
	if (strlen(text) > SPEC_MAX_TEXT_BYTES)
		return views_fail(&r, "the views' text is longer than %d bytes", SPEC_MAX_TEXT_BYTES);
	given = json_loads(text, JSON_REJECT_DUPLICATES, &why);
	if (!given)
		return views_fail(&r, "the views are not valid JSON: line %d, column %d: %.150s", why.line, why.column,
				  why.text);
	rc = views_read(&r, given, out);
	json_decref(given);
	return rc;
}

unsigned views_n(const struct pipeline *p)
{
	return 1 + p->n_more;
}

const struct pipeline *views_at(const struct pipeline *p, unsigned k)
{
	return k ? p->more[k - 1] : p;
}

bool views_name(const struct pipeline *p, unsigned k, const char *field, char *name, size_t size)
{
	const char *own = views_at(p, k)->name;
	bool whole = *own && *own != '.';
	int n = snprintf(name, size, "%s%s", whole ? "" : field, own);

	return n > 0 && (size_t)n < size;
}

/* ---- running ---- */

/* What the views need of an image of this size, into part->region. */
static int note_needs(const struct pipeline *p, struct op_run *run, struct view_part *part, uint32_t width,
		      uint32_t height, struct image_error *err)
{
	for (unsigned k = 0; k < views_n(p); k++) {
		const struct spec *s = &views_at(p, k)->spec;
		struct view v;
		int rc;

		view_of_part(&v, part, width, height);
		v.pixel = s->form.pixel;
		rc = ops_run(run, s->ops, s->n_pixel_ops, &v, err);
		if (rc == 0)
			view_note(&v);
		else if (rc != VIEW_E_LATER)
			return rc;
	}
	return 0;
}

int views_run(const struct pipeline *p, struct pipeline_worker *w, struct decoder *d, const struct image_info *info,
	      struct sample_key key, void *const rows[], struct image_error *err)
{
	struct view_part part = { .is_there = false };
	struct op_run run;
	int rc;

	if (views_n(p) == 1)
		return pipeline_run(p, w, d, info, key, rows[0], err);
	op_run_init(&run, w, key);
	rc = note_needs(p, &run, &part, info->width, info->height, err);
	if (rc == 0)
		rc = decoder_region_as(d, pipeline_pixel(p), part.region, &part.image, err);
	part.is_there = true;
	for (unsigned k = 0; rc == 0 && k < views_n(p); k++) {
		struct view v;

		view_of_part(&v, &part, info->width, info->height);
		rc = pipeline_make(views_at(p, k), &run, &v, 0, rows[k], err);
	}
	return rc;
}

/* Every view from the same pixels, from op number `first` on. */
static int make_views(const struct pipeline *p, struct pipeline_worker *w, const struct image *from, bool gray,
		      unsigned first, struct sample_key key, void *const rows[], struct image_error *err)
{
	struct op_run run;
	int rc = 0;

	op_run_init(&run, w, key);
	for (unsigned k = 0; rc == 0 && k < views_n(p); k++) {
		struct view v;

		(gray ? view_of_gray : view_of_image)(&v, w, from);
		rc = pipeline_make(views_at(p, k), &run, &v, first, rows[k], err);
	}
	return rc;
}

int views_run_image(const struct pipeline *p, struct pipeline_worker *w, const struct image *source, bool gray,
		    struct sample_key key, void *const rows[], struct image_error *err)
{
	return make_views(p, w, source, gray, 0, key, rows, err);
}

uint64_t views_prefix_bytes(const struct pipeline *p, struct pipeline_worker *w, uint32_t width, uint32_t height)
{
	struct view_part part = { .is_there = false };
	struct sample_key unused = { 0, 0, 0 }; /* nothing in the prefix draws */
	struct image_error err;
	struct op_run run;
	struct view v;

	op_run_init(&run, w, unused);
	view_of_part(&v, &part, width, height);
	if (ops_run(&run, p->spec.ops, p->spec.n_prefix, &v, &err) == 0) {
		width = view_width(&v);
		height = view_height(&v);
	}
	return (uint64_t)width * height * pixel_bytes(pipeline_pixel(p));
}

/* A prefix lies where views put their images: from now on it belongs to none of them. */
static void keep_source(struct pipeline_worker *w, const uint8_t *at)
{
	for (unsigned i = 0; i < 2; i++) {
		struct scratch *s = &w->pixels[i], other = w->source;

		if (!s->data || at < s->data || at >= s->data + s->size_bytes)
			continue;
		w->source = *s;
		*s = other;
	}
}

int views_resume(const struct pipeline *p, struct pipeline_worker *w, const struct image *prefix, struct sample_key key,
		 void *const rows[], struct image_error *err)
{
	if (views_n(p) > 1)
		keep_source(w, prefix->rgb);
	return make_views(p, w, prefix, false, p->spec.n_prefix, key, rows, err);
}
