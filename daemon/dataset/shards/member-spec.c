/* See member-spec.h. */
#include "dataset/shards/member-spec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dataset/field.h"

/* Endings of what the decoder reads, the most common first. */
#define PICTURES "jpg;jpeg;png;webp;bmp;ppm;pgm;pbm;pnm;gif;tif;tiff"

/* Files that are one value each. */
#define NUMBERS "cls;cls2;class;count;index;inx;id"
#define TEXTS "txt;text;transcript"

/* The last part of an extension decides: "en.txt" is a text. */
static bool is_among(const char *extensions, const char *kinds)
{
	size_t n = strcspn(extensions, ";");
	const char *dot = memrchr(extensions, '.', n);
	const char *last = dot ? dot + 1 : extensions;

	n -= (size_t)(last - extensions);
	for (const char *kind = kinds; *kind; kind += strcspn(kind, ";"), kind += *kind == ';') {
		if (strcspn(kind, ";") == n && !memcmp(kind, last, n))
			return true;
	}
	return false;
}

static enum column_kind kind_of(const char *extensions)
{
	if (is_among(extensions, NUMBERS))
		return COLUMN_INT64;
	return is_among(extensions, TEXTS ";json;jsn") ? COLUMN_TEXT : COLUMN_BYTES;
}

static int bad_item(const struct SourcePair *item, const char *why, struct dataset_error *err)
{
	return dataset_fail(err, DATASET_E_INVALID, -EINVAL, "fields '%.60s%s%.140s': %s", item->name,
			    *item->name ? "=" : "", item->value, why);
}

static const struct {
	const char *name;
	enum column_kind kind;
} kinds[] = {
	{ "int", COLUMN_INT64 },
	{ "float", COLUMN_FLOAT32 },
	{ "text", COLUMN_TEXT },
	{ "class", COLUMN_CLASS },
};

static bool take_kind_named(struct member_value *v, const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!strcmp(name, kinds[i].name)) {
			v->kind = kinds[i].kind;
			return v->is_told = v->has_kind = true;
		}
	}
	return false;
}

/* "caption:text". A key that ends so itself is written with its kind after it. Of a file that is one value, as "cls" is,
 * the kind stands alone. */
static void take_kind(struct member_value *v)
{
	char *colon = strrchr(v->key, ':');

	if (colon && colon > v->key && take_kind_named(v, colon + 1))
		*colon = '\0';
	else if (!colon && is_among(v->extensions, NUMBERS ";" TEXTS) && take_kind_named(v, v->key))
		v->key[0] = '\0';
}

/* "json:caption" */
static void take_key(struct member_value *v)
{
	char *colon = strchr(v->extensions, ':');

	if (colon && colon[1]) {
		snprintf(v->key, sizeof(v->key), "%s", colon + 1);
		*colon = '\0';
		take_kind(v);
	}
}

static int take_item(const struct SourcePair *item, struct member_fields *out, struct dataset_error *err)
{
	struct member_value *v = &out->values[out->n_values];
	size_t n_extensions;

	if (!*item->name)
		return bad_item(item,
				"a name or an extension that is empty: expected NAME=EXTENSION[;EXTENSION]...,NAME=...",
				err);
	if (out->n_values == COLUMNS_MAX || strlen(item->name) >= sizeof(v->name) ||
	    strlen(item->value) >= sizeof(v->extensions))
		return bad_item(item, "at most 31 fields besides the image, of at most 63 characters each", err);
	*v = (struct member_value){ 0 };
	strcpy(v->name, item->name);
	strcpy(v->extensions, item->value);
	take_key(v);
	n_extensions = strlen(v->extensions);
	if (!n_extensions || !field_name_is_valid(v->name) || strspn(v->extensions, ";.") == n_extensions)
		return bad_item(item, "a name or an extension that is empty, or has other characters than letters",
				err);
	for (unsigned k = 0; k < out->n_values; k++) {
		if (!strcmp(out->values[k].name, v->name))
			return bad_item(item, "a name that is there twice", err);
	}
	if (v->kind == COLUMN_CLASS && v->is_told && strcmp(v->name, "label"))
		return bad_item(item, "class is a kind of the label only", err);
	v->kind = v->is_told ? v->kind : kind_of(v->extensions);
	out->n_values++;
	return 0;
}

/* Takes the image out of the values. */
static void choose_image(struct member_fields *out)
{
	unsigned found = out->n_values;

	for (unsigned k = out->n_values; k-- > 0;)
		found = !out->values[k].key[0] && is_among(out->values[k].extensions, PICTURES) ? k : found;
	for (unsigned k = 0; k < out->n_values; k++)
		found = !out->values[k].key[0] && !strcmp(out->values[k].name, "image") ? k : found;
	if (found == out->n_values) {
		out->image_name[0] = out->image[0] = '\0';
		return;
	}
	member_fields_make_image(out, found);
}

int member_spec_take(const struct Source *s, struct member_fields *out, struct dataset_error *err)
{
	int r = 0;

	*out = (struct member_fields){ .image_name = "image", .image = PICTURES };
	if (!s->n_field) {
		out->n_values = 1;
		out->values[0] = (struct member_value){
			.name = "label", .extensions = "cls", .kind = COLUMN_INT64, .optional = true
		};
		return 0;
	}
	out->is_listed = true;
	for (size_t i = 0; !r && i < s->n_field; i++)
		r = take_item(s->field[i], out, err);
	if (!r)
		choose_image(out);
	return r;
}
