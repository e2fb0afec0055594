/* See verify-command.h. */
#include "batch/verify-command.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* What no shell changes. */
static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";

void verify_command(const char *dataset, char *out, size_t size)
{
	const char *quote = dataset[strspn(dataset, plain)] ? "'" : "";
	size_t n = (size_t)snprintf(out, size, "batchctl verify %s", quote), n_end = strlen(quote) + 1;

	assert(n + n_end < size);
	for (const char *at = dataset; *at; at++) {
		const char byte[2] = { *at };
		/* A quote ends the quoted text, stands there by itself, and begins it again. */
		const char *text = *at == '\'' ? "'\\''" : at[0] == '/' && at[1] == '/' ? "" : byte;

		if (n + strlen(text) + n_end > size)
			break;
		n += (size_t)snprintf(out + n, size - n, "%s", text);
	}
	snprintf(out + n, size - n, "%s", quote);
}

bool verify_can_open(const char *dataset)
{
	return strncmp(dataset, "memory:", 7) != 0 && !strstr(dataset, "arrow:table=");
}
