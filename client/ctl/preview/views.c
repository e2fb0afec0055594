#include "ctl/preview/views.h"

#include <string.h>

enum { GAP_PX = 4 };

struct corner {
	uint32_t left, top;
};

static struct corner next_corner(struct corner at, const uint32_t before[3], const uint32_t shape[3], uint32_t height)
{
	uint32_t below = at.top + before[0] + GAP_PX;

	if (shape[0] == before[0] && shape[1] == before[1] && below + shape[0] <= height)
		return (struct corner){ at.left, below };
	return (struct corner){ at.left + before[1] + GAP_PX, 0 };
}

void preview_views_measure(const struct pipeline *p, uint32_t *width, uint32_t *height)
{
	struct corner at = { 0, 0 };
	uint32_t before[3], shape[3];

	*width = *height = 0;
	for (unsigned k = 0; k < views_n(p); k++) {
		pipeline_shape(views_at(p, k), shape);
		*height = shape[0] > *height ? shape[0] : *height;
	}
	for (unsigned k = 0; k < views_n(p); k++) {
		pipeline_shape(views_at(p, k), shape);
		at = k ? next_corner(at, before, shape, *height) : at;
		*width = at.left + shape[1] > *width ? at.left + shape[1] : *width;
		memcpy(before, shape, sizeof before);
	}
}

void preview_views_draw(const struct pipeline *p, void *const *rows, uint8_t *one, uint32_t width, uint32_t height,
			uint8_t *rgb)
{
	struct corner at = { 0, 0 };
	uint32_t before[3], shape[3];

	memset(rgb, 0xff, (size_t)width * height * 3);
	for (unsigned k = 0; k < views_n(p); k++) {
		pipeline_shape(views_at(p, k), shape);
		pipeline_picture(views_at(p, k), rows[k], one);
		at = k ? next_corner(at, before, shape, height) : at;
		for (uint32_t y = 0; y < shape[0]; y++)
			memcpy(rgb + ((size_t)(at.top + y) * width + at.left) * 3, one + (size_t)y * shape[1] * 3,
			       (size_t)shape[1] * 3);
		memcpy(before, shape, sizeof before);
	}
}
