/* Which extensions of a packed sample become which fields: "image=jpg;png,text=txt,label=cls". */
#ifndef BATCHD_MEMBER_SPEC_H
#define BATCHD_MEMBER_SPEC_H

#include "dataset/error.h"
#include "dataset/shards/members.h"
#include "sources.h"

/* Fills in `out` from a source's fields, each NAME=EXTENSION[;EXTENSION]...[:KEY][:KIND]. The image is the field of that name, or the
 * first whose extensions are pictures'; without either, samples have no image. With a KEY the value is that of a JSON
 * object, whose first one decides what it is, unless a KIND does: "int", "float", "text", or "class" of the label. Numbers, texts and bytes are told apart by their extensions, as webdataset does. Without
 * fields: an image, and "cls" as label where there is one. 0 or -EINVAL with err. */
int member_spec_take(const struct Source *s, struct member_fields *out, struct dataset_error *err);

#endif
