/* The ziggurat of Marsaglia and Tsang with 128 layers. Layer, sign and place in the layer come from different bits of a
 * number, so they are independent. */
#include "pipeline/normal.h"

#include <math.h>
#include <pthread.h>

enum { N_LAYERS = 128 };

static const double tail_from = 3.442619855899, layer_area = 9.91256303526217e-3;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Layer i reaches from 0 to edge[i], and is wholly below the curve up to edge[i + 1]. The lowest one also stands for the
 * tail. */
static float edge[N_LAYERS + 1], curve[N_LAYERS + 1];

static void normal_make_tables(void)
{
	double x = tail_from;

	edge[0] = (float)(layer_area / exp(-0.5 * x * x));
	for (int i = 1; i < N_LAYERS; i++) {
		double y = exp(-0.5 * x * x);

		edge[i] = (float)x;
		curve[i] = (float)y;
		x = sqrt(-2.0 * log(layer_area / x + y));
	}
	edge[N_LAYERS] = 0.0f;
	curve[N_LAYERS] = 1.0f;
}

void normal_prepare(void)
{
	pthread_once(&once, normal_make_tables);
}

static double from_tail(struct random *r)
{
	double x, y;

	do {
		x = -log(1.0 - random_unit(r)) / tail_from;
		y = -log(1.0 - random_unit(r));
	} while (2.0 * y < x * x);
	return tail_from + x;
}

float random_normal(struct random *r)
{
	for (;;) {
		uint32_t bits = random_bits(r), layer = bits % N_LAYERS;
		float x = (float)(bits >> 8) * 0x1p-24f * edge[layer], sign = bits & N_LAYERS ? -1.0f : 1.0f;
		double y;

		if (x < edge[layer + 1])
			return sign * x;
		if (layer == 0)
			return sign * (float)from_tail(r);
		y = (double)curve[layer] + random_unit(r) * ((double)curve[layer + 1] - (double)curve[layer]);
		if (y < exp(-0.5 * (double)x * (double)x))
			return sign * x;
	}
}
