/* Pipelines that must not be accepted. */
#ifndef BATCHD_TESTS_PIPELINES_H
#define BATCHD_TESTS_PIPELINES_H

#include "suite.h"

#include <errno.h>

#include "pipeline/pipeline.h"

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
