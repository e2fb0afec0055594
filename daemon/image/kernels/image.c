/* Plain pixels: the growing buffer that every worker decodes into, and one-line errors about images.
 *
 * With this buffer a worker that has seen its largest image allocates no more. The buffer's tail is padded because
 * vector code reads and writes whole registers past the last pixel. */
#include "image/kernels/image.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/workspace.h"

enum { SCRATCH_ALIGN = 64, SCRATCH_TAIL = 64, SPARE_MAX = 4 << 20 };

uint8_t *scratch_reserve(struct scratch *s, size_t size_bytes)
{
	if (s->data && size_bytes <= s->size_bytes)
		return s->data;
	if (size_bytes > SIZE_MAX / 2)
		return NULL;

	/* A quarter more than requested, so that slowly growing images do not each need a new buffer. */
	size_t room = size_bytes + (size_bytes / 4 < SPARE_MAX ? size_bytes / 4 : SPARE_MAX);
	size_t whole = (room + SCRATCH_TAIL + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
	scratch_finish(s);
	s->data = work_alloc(whole, &s->payer);
	s->whole_bytes = whole;
	s->size_bytes = s->data ? room : 0;
	return s->data;
}

void scratch_finish(struct scratch *s)
{
	work_free(s->data, s->whole_bytes, s->payer);
	*s = (struct scratch){ 0 };
}

int image_fail(struct image_error *err, int outcome, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	return outcome;
}
