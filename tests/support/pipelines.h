/* Pipelines that must be accepted, and those that must not. */
#ifndef BATCHD_TESTS_PIPELINES_H
#define BATCHD_TESTS_PIPELINES_H

#include "suite.h"

#include <errno.h>

#include "image/transform/pipeline.h"
#include "image/transform/views.h"

/* The pipeline, or views, of a text: bytes in HWC of an RGB image. */
static inline struct pipeline *expect_pipeline(const char *text)
{
	const struct image_form unknown = { .n_channels = 3 };
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;

	ck_assert_msg(views_parse(text, &unknown, DTYPE_UINT8, LAYOUT_NHWC, &p, &err) == 0, "%s: %s", text, err.text);
	return p;
}

/* words: what the message must contain, separated by '|'. */
static inline void expect_refusal(const char *text, const char *words)
{
	struct pipeline_error err = { "" };
	struct pipeline *p = NULL;
	char copy[256], *rest = copy, *word;

	ck_assert_msg(pipeline_parse(text, DTYPE_UINT8, LAYOUT_NHWC, &p, &err) == -EINVAL, "'%.100s' was not refused",
		      text);
	snprintf(copy, sizeof(copy), "%s", words);
	while ((word = strsep(&rest, "|")))
		ck_assert_msg(strstr(err.text, word) != NULL, "'%s' does not say '%s'", err.text, word);
}

#endif
