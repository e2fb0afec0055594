/* See mix.h. Pixels are blended as bytes, which is what a blend of normalised floats looks like. */
#include "ctl/preview/mix.h"

#include <math.h>
#include <string.h>

#include "ctl/ctl.h"

int preview_mix_draw(const char *text, const struct mix_place *place, uint32_t n, uint32_t height, uint32_t width,
		     uint32_t n_classes, struct batchd_mix_row *rows, struct preview_targets *targets)
{
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
	if (mix.n_classes && n_classes > mix.n_classes) {
		ctl_complain("preview", "--mix: the data set has %u classes, and the soft targets only %u", n_classes,
			     mix.n_classes);
		return CTL_USAGE;
	}
	*targets = (struct preview_targets){ .on = 1 };
	if (mix.n_classes)
		mix_target_values(&mix, &targets->on, &targets->off);
	mix_draw(&mix, place, n, height, width, rows);
	return CTL_OK;
}

void preview_mix_targets(const struct batchd_mix_row *row, struct preview_targets t, bool same, float out[2])
{
	out[0] = t.on * row->weight + (same ? t.on : t.off) * row->partner_weight;
	out[1] = (same ? t.on : t.off) * row->weight + t.on * row->partner_weight;
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
