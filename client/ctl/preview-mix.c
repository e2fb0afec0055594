/* See preview-mix.h. Pixels are blended as bytes, which is what a blend of normalised floats looks like. */
#include "preview-mix.h"

#include <math.h>
#include <string.h>

#include "ctl.h"
#include "mix.h"

int preview_mix_draw(const char *text, uint64_t seed, uint64_t epoch, uint32_t n, uint32_t height, uint32_t width,
		     struct batchd_mix_row *rows)
{
	struct mix_place place = { .seed = seed, .epoch = epoch };
	struct mix mix;
	char why[256];

	if (!mix_parse(text, &mix, why, sizeof why)) {
		ctl_complain("preview", "--mix: %s", why);
		return CTL_USAGE;
	}
	if (n % 2 && mix_wants_even(&mix)) {
		ctl_complain("preview", "--mix: timm's Mixup wants an even number of rows; give --n %u", n + 1);
		return CTL_USAGE;
	}
	mix_draw(&mix, &place, n, height, width, rows);
	return CTL_OK;
}

void preview_mix_picture(const struct batchd_mix_row *rows, uint32_t i, const uint8_t *pictures, uint32_t height,
			 uint32_t width, uint8_t *out)
{
	const struct batchd_mix_row *r = &rows[i];
	size_t pitch = (size_t)width * 3, n = pitch * height;
	const uint8_t *own = pictures + i * n, *partner = pictures + r->partner * n;

	memcpy(out, own, n);
	if (r->kind == BATCHD_MIX_BLEND)
		for (size_t k = 0; k < n; k++)
			out[k] = (uint8_t)lrintf((float)own[k] * r->weight + (float)partner[k] * r->partner_weight);
	for (size_t y = r->top; r->kind == BATCHD_MIX_BOX && y < r->bottom; y++)
		memcpy(out + y * pitch + r->left * 3ul, partner + y * pitch + r->left * 3ul,
		       (r->right - r->left) * 3ul);
}
