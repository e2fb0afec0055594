#include "difference.h"

#include <stdio.h>
#include <string.h>

int difference_ask(struct link *k, const struct token *t, char *text, size_t size, struct fault *f)
{
	Batchd__Wire__Compare body = BATCHD__WIRE__COMPARE__INIT;
	const Batchd__Wire__ServerMessage *answer;
	int r;

	text[0] = '\0';
	if (!t->n_fingerprint_bytes || !k->n_fingerprint_bytes)
		return 0;
	body.fingerprint.data = (uint8_t *)t->fingerprint;
	body.fingerprint.len = t->n_fingerprint_bytes;
	body.n_samples = t->n_samples;
	r = link_call(k, WIRE_CLIENT(COMPARE, compare, &body), "a comparison",
		      BATCHD__WIRE__SERVER_MESSAGE__BODY_NOTICE, &answer, f);
	if (r == 0)
		snprintf(text, size, "%s", answer->notice->text);
	return r;
}

void difference_guess(const struct link *k, const char *dataset, const struct token *t, char *text, size_t size)
{
	if (strcmp(t->source, dataset) != 0 && strncmp(t->source, dataset, sizeof t->source - 1) != 0)
		snprintf(text, size, "%s with %llu samples then, %s with %llu now", t->source,
			 (unsigned long long)t->n_samples, dataset, (unsigned long long)k->info.n_samples);
	else if (t->n_samples != k->info.n_samples)
		snprintf(text, size, "%llu samples then, %llu now", (unsigned long long)t->n_samples,
			 (unsigned long long)k->info.n_samples);
	else
		snprintf(text, size, "as many samples, but other ones");
}
