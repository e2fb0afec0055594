/* The ziggurat of Marsaglia and Tsang with 128 layers. Layer, sign and place in the layer come from different bits of a
 * number, so they are independent. */
#include "image/transform/normal.h"

#include <math.h>
#include <pthread.h>

static const double layer_area = 9.91256303526217e-3;
static pthread_once_t once = PTHREAD_ONCE_INIT;
float normal_edge[NORMAL_LAYERS + 1], normal_curve[NORMAL_LAYERS + 1];

static void normal_make_tables(void)
{
	double x = NORMAL_TAIL_FROM;

	normal_edge[0] = (float)(layer_area / exp(-0.5 * x * x));
	for (int i = 1; i < NORMAL_LAYERS; i++) {
		double y = exp(-0.5 * x * x);

		normal_edge[i] = (float)x;
		normal_curve[i] = (float)y;
		x = sqrt(-2.0 * log(layer_area / x + y));
	}
	normal_edge[NORMAL_LAYERS] = 0.0f;
	normal_curve[NORMAL_LAYERS] = 1.0f;
}

void normal_prepare(void)
{
	pthread_once(&once, normal_make_tables);
}

static double from_tail(struct random *r)
{
	double x, y;

	do {
		x = -log(1.0 - random_unit(r)) / NORMAL_TAIL_FROM;
		y = -log(1.0 - random_unit(r));
	} while (2.0 * y < x * x);
	return NORMAL_TAIL_FROM + x;
}

float random_normal(struct random *r)
{
	for (;;) {
		uint32_t bits = random_bits(r), layer = bits % NORMAL_LAYERS;
		float x = (float)(bits >> 8) * 0x1p-24f * normal_edge[layer],
		      sign = bits & NORMAL_LAYERS ? -1.0f : 1.0f;
		double y;

		if (x < normal_edge[layer + 1])
			return sign * x;
		if (layer == 0)
			return sign * (float)from_tail(r);
		y = (double)normal_curve[layer] +
		    random_unit(r) * ((double)normal_curve[layer + 1] - (double)normal_curve[layer]);
		if (y < exp(-0.5 * (double)x * (double)x))
			return sign * x;
	}
}
