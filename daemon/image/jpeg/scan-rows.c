/* Finished rows of pixels: they stay in the image, or a sink takes them in bands. */
#include "image/jpeg/scan-impl.h"

uint8_t *scan_row_place(const struct scan *s, uint32_t y, const struct image *out)
{
	uint32_t row = y - s->want.y;

	return out->rgb + (s->sink ? row % ROW_SINK_BAND : row) * out->stride_bytes;
}

void scan_row_done(struct scan *s, uint32_t y, const struct image *out)
{
	uint32_t row = y - s->want.y, in_band = row % ROW_SINK_BAND;

	if (s->sink && (in_band == ROW_SINK_BAND - 1 || row == s->want.height - 1)) {
		s->sink->take(s->sink, out->rgb, out->stride_bytes, in_band + 1);
		s->sink_has_rows = true;
	}
}
