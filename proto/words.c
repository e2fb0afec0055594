/* See words.h. */
#include "words.h"

#include <stdint.h>
#include <string.h>

enum { MAX_WORD_BYTES = 32 }; /* longer words are not compared */

size_t word_distance(const char *a, const char *b)
{
	size_t n_a = strlen(a), n_b = strlen(b);
	size_t row[MAX_WORD_BYTES + 1];

	if (n_a > MAX_WORD_BYTES || n_b > MAX_WORD_BYTES)
		return SIZE_MAX;
	for (size_t j = 0; j <= n_b; j++)
		row[j] = j;
	for (size_t i = 1; i <= n_a; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n_b; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			if (best > row[j] + 1)
				best = row[j] + 1;
			if (best > row[j - 1] + 1)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[n_b];
}

size_t word_most_wrong(const char *word)
{
	return 1 + strlen(word) / 3;
}

const char *word_nearest(const char *word, const char *const *candidates)
{
	const char *nearest = NULL;
	size_t best = word_most_wrong(word);

	for (; *candidates; candidates++) {
		size_t d = word_distance(word, *candidates);

		if (d < best || (d == best && !nearest)) {
			best = d;
			nearest = *candidates;
		}
	}
	return nearest;
}
