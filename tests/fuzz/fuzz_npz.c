/* Directories of .npz files: any bytes are refused with text, or describe members that lie inside the archive. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/arrays/npz.h"

struct bytes {
	const uint8_t *at;
	size_t n;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_bytes(void *arg, uint64_t at, void *to, size_t n)
{
	const struct bytes *b = arg;

	if (at > b->n || n > b->n - at) {
		abort(); /* the reader has checked its places before */
	}
	memcpy(to, b->at + at, n);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct npz_member members[NPZ_MAX_MEMBERS];
	struct bytes b = { data, size };
	struct npy_error err = { "" };
	unsigned n = 0;
	int r = npz_read(read_bytes, &b, size, members, &n, &err);

	if (r < 0) {
		if (r != -EINVAL || !err.text[0] || !memchr(err.text, '\0', sizeof(err.text))) {
			abort();
		}
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		const struct npz_member *m = &members[i];

		if (m->offset > size || m->n_stored > size - m->offset || (!m->deflated && m->n_bytes != m->n_stored) ||
		    !memchr(m->name, '\0', sizeof(m->name)) || !m->name[0]) {
			abort();
		}
	}
	return 0;
}
