/* A trainer for the endurance runs: small, quick to start, killed at any moment.
 *
 *     trainer SOCKET DATASET JOB MODE RANK WORLD_SIZE BATCH_SIZE SEED EPOCH STEP EPOCHS HOLD PACE_US
 *
 * It takes every batch from (EPOCH, STEP) up to the end of EPOCH + EPOCHS, holds the last HOLD of them, works PACE_US
 * on each and prints a line per batch, in one write, as soon as it has the batch:
 *
 *     EPOCH STEP N_PADDING CRC INDEX,INDEX,...
 *
 * CRC is that of the rows, then the labels. It is computed again before the batch is released: "TORN" and exit code 3
 * if it has changed, which means that a slot was reused while it was lent. With PACE_US -1 the trainer prints a line
 * per epoch only, "EPOCH N_BATCHES", and looks at no bytes. When the daemon goes away, the trainer reconnects for up to
 * 60 seconds and continues from where it was. Exit codes: 0 got everything; 1 an error (printed on stderr); 2 usage. */
#include <batchd.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { MAX_HELD = 64, RETRY_MS = 20, GIVE_UP_MS = 60000 };

struct held {
	struct batchd_batch batch;
	uint32_t crc;
};

struct trainer {
	struct batchd_options options;
	struct batchd_loader *loader;
	size_t row_bytes, label_bytes;
	struct held held[MAX_HELD];
	unsigned n_held, hold;
	long pace_us;
	uint64_t epoch, step;
};

static void sleep_us(long us)
{
	nanosleep(&(struct timespec){ .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 }, NULL);
}

static size_t dtype_bytes(enum batchd_dtype t)
{
	static const size_t bytes[] = { 1, 2, 4, 4, 8, 8, 2, 1 };

	return bytes[t];
}

static bool comes_back(int code)
{
	return code == BATCHD_E_CONNECT || code == BATCHD_E_LOST || code == BATCHD_E_SHUTDOWN;
}

static int open_loader(struct trainer *t)
{
	struct batchd_info info = { .size_bytes = sizeof info };
	char err[512];
	int r = BATCHD_E_CONNECT;

	for (int waited = 0; waited < GIVE_UP_MS; waited += RETRY_MS) {
		r = batchd_open(&t->options, &t->loader, err, sizeof err);
		if (r == 0)
			r = batchd_start(t->loader, t->epoch, 0, t->step, NULL);
		if (r == 0)
			break;
		batchd_close(t->loader);
		t->loader = NULL;
		if (!comes_back(r))
			break;
		sleep_us(RETRY_MS * 1000);
	}
	if (r < 0) {
		fprintf(stderr, "trainer: open: %s\n", err);
		return r;
	}
	batchd_get_info(t->loader, &info);
	t->row_bytes = dtype_bytes(info.dtype);
	for (uint32_t i = 0; i < info.n_dims; i++)
		t->row_bytes *= info.shape[i];
	t->label_bytes = dtype_bytes(info.label_dtype);
	for (uint32_t i = 0; i < info.n_label_dims; i++)
		t->label_bytes *= info.label_shape[i];
	return 0;
}

static uint32_t crc_of(const struct trainer *t, const struct batchd_batch *b)
{
	uLong crc = crc32(0, b->data, (uInt)(t->row_bytes * b->n_rows));

	return (uint32_t)crc32(crc, b->labels, (uInt)(t->label_bytes * b->n_rows));
}

static void say(const struct batchd_batch *b, uint32_t crc)
{
	char line[65536];
	ssize_t written;
	int n = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " ", b->epoch, b->step,
			 b->n_padding, crc);

	for (uint32_t i = 0; i < b->n_rows && n < (int)sizeof line - 32; i++)
		n += snprintf(line + n, sizeof line - (size_t)n, i ? ",%" PRId64 : "%" PRId64, b->indices[i]);
	line[n++] = '\n';
	while ((written = write(STDOUT_FILENO, line, (size_t)n)) < 0 && errno == EINTR)
		;
	if (written != n)
		exit(1);
}

/* Releases the oldest batches and keeps `keep`; each must be unchanged. */
static void let_go(struct trainer *t, unsigned keep)
{
	unsigned n = t->n_held > keep ? t->n_held - keep : 0;

	for (unsigned i = 0; i < n; i++) {
		if (t->pace_us >= 0 && crc_of(t, &t->held[i].batch) != t->held[i].crc) {
			printf("TORN %" PRIu64 " %" PRIu64 "\n", t->held[i].batch.epoch, t->held[i].batch.step);
			fflush(stdout);
			exit(3);
		}
		batchd_release(t->loader, t->held[i].batch.slot, t->held[i].batch.generation);
	}
	t->n_held -= n;
	memmove(t->held, t->held + n, t->n_held * sizeof *t->held);
}

static int take(struct trainer *t)
{
	struct held h = { .batch = { .size_bytes = sizeof h.batch } };
	int r = batchd_next(t->loader, &h.batch, BATCHD_FOREVER);

	if (r != BATCHD_OK)
		return r;
	if (t->pace_us >= 0) {
		h.crc = crc_of(t, &h.batch);
		say(&h.batch, h.crc);
	}
	t->step++;
	t->held[t->n_held++] = h;
	let_go(t, t->hold);
	if (t->pace_us > 0)
		sleep_us(t->pace_us);
	return BATCHD_OK;
}

static int come_back(struct trainer *t, int code)
{
	if (!comes_back(code)) {
		fprintf(stderr, "trainer: %s\n", batchd_error(t->loader));
		return code;
	}
	let_go(t, 0);
	batchd_close(t->loader);
	t->loader = NULL;
	return open_loader(t);
}

static int train(struct trainer *t, uint64_t end_epoch)
{
	int r = open_loader(t);

	while (r >= 0 && t->epoch < end_epoch) {
		r = take(t);
		if (r == BATCHD_END) {
			if (t->pace_us < 0) {
				printf("%" PRIu64 " %" PRIu64 "\n", t->epoch, t->step);
				fflush(stdout);
			}
			t->epoch++;
			t->step = 0;
			r = t->epoch < end_epoch ? batchd_start(t->loader, t->epoch, 0, 0, NULL) : 0;
		}
		if (r < 0)
			r = come_back(t, r);
	}
	if (r >= 0)
		let_go(t, 0);
	batchd_close(t->loader);
	return r;
}

int main(int argc, char **argv)
{
	struct trainer t = { 0 };

	if (argc != 14) {
		fprintf(stderr,
			"usage: trainer SOCKET DATASET JOB MODE RANK WORLD_SIZE BATCH_SIZE SEED EPOCH STEP EPOCHS HOLD PACE_US\n");
		return 2;
	}
	batchd_options_init(&t.options);
	t.options.autostart = 0;
	t.options.shuffle = 1;
	t.options.socket = argv[1];
	t.options.dataset = argv[2];
	t.options.job = argv[3];
	t.options.mode = strcmp(argv[4], "share") == 0 ? BATCHD_SHARE : BATCHD_SHARD;
	t.options.rank = atoi(argv[5]);
	t.options.world_size = (uint32_t)atoi(argv[6]);
	t.options.batch_size = (uint32_t)atoi(argv[7]);
	t.options.seed = strtoull(argv[8], NULL, 10);
	t.epoch = strtoull(argv[9], NULL, 10);
	t.step = strtoull(argv[10], NULL, 10);
	t.hold = (unsigned)atoi(argv[12]);
	t.pace_us = atol(argv[13]);
	if (t.hold >= MAX_HELD) {
		fprintf(stderr, "trainer: HOLD must be below %d\n", MAX_HELD);
		return 2;
	}
	return train(&t, t.epoch + strtoull(argv[11], NULL, 10)) < 0;
}
