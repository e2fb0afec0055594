/* A trainer that checks everything: it compares each batch on its GPU with the same batch in host memory, holds it for
 * a while, and compares it again before it gives the batch back. For tests with real processes, on a GPU or on the
 * fake driver ($BATCHD_LIBCUDA).
 *
 *   gpu-trainer DATASET BATCHES [--job NAME] [--share] [--rank R] [--world N] [--batch N] [--hold-us MOST] [--seed N]
 *               [--epoch E] [--device D] [--reconnect-ms N] [--stay] [--progress] [--leave]
 *
 * --leave: after its last batch it exits, and closes nothing.
 * --stay: after an error it keeps running, and closes nothing, until its standard input ends. It prints events as they
 * come, "lost: TEXT", and with --progress each new phase of opening, "phase: NAME". Last line: "BATCHES batches, PATH,
 * REASON".
 *
 * Exit status 0; 1: a byte differs; 3: an error of batchd, which is printed; 4: an error of CUDA. */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batchd.h"
#include "gpu/driver.h"

static struct cuda_driver cu;

static void check(int result, const char *call)
{
	if (result == CUDA_OK)
		return;
	printf("%s: %s\n", call, cuda_error_name(&cu, result));
	exit(4);
}
#define CU(call) check(cu.call, #call)

static int fail(const char *what, const char *text)
{
	printf("%s: %s\n", what, text);
	return 3;
}

static void use_gpu(int ordinal, cuda_device *device)
{
	struct cuda_context *context;
	char why[256];
	if (cuda_driver_load(&cu, why, sizeof(why))) {
		printf("%s\n", why);
		exit(4);
	}
	CU(init(0));
	CU(device_get(device, ordinal));
	CU(primary_ctx_retain(&context, *device));
	CU(ctx_set_current(context));
}

static size_t element_bytes(enum batchd_dtype t)
{
	static const size_t bytes[] = {
		[BATCHD_UINT8] = 1, [BATCHD_FLOAT16] = 2, [BATCHD_FLOAT32] = 4, [BATCHD_INT32] = 4,
		[BATCHD_INT64] = 8, [BATCHD_FLOAT64] = 8, [BATCHD_INT16] = 2,   [BATCHD_BOOL] = 1
	};
	return bytes[t];
}

static void on_event(void *arg, int event, const char *text)
{
	(void)arg;
	printf("%s: %s\n", event == BATCHD_EVENT_LOST ? "lost" : event == BATCHD_EVENT_BACK ? "back" : "event", text);
	fflush(stdout);
}

static bool same(const void *device, const void *host, void *room, size_t n_bytes, const char *when,
		 const struct batchd_batch *b)
{
	CU(memcpy_dtoh_async(room, (cuda_ptr)(uintptr_t)device, n_bytes, NULL));
	CU(stream_synchronize(NULL));
	if (memcmp(room, host, n_bytes) == 0)
		return true;
	size_t i = 0;
	while (((uint8_t *)room)[i] == ((const uint8_t *)host)[i])
		i++;
	printf("epoch %llu batch %llu, slot %u: byte %zu of %zu differs %s\n", (unsigned long long)b->epoch,
	       (unsigned long long)b->step, b->slot, i, n_bytes, when);
	return false;
}

/* One batch, from taking to giving back. */
static int look_at(struct batchd_loader *l, const struct batchd_batch *b, const struct batchd_info *info,
		   unsigned hold_us)
{
	size_t row = element_bytes(info->stored_dtype), n;
	for (uint32_t i = 0; i < info->n_dims; i++)
		row *= info->stored_shape[i];
	n = row * b->n_rows;
	void *copy = malloc(n), *room = malloc(n);
	memcpy(copy, b->data, n);
	int r = batchd_cuda_wait(l, b->slot, b->generation, NULL);
	bool ok = r == BATCHD_E_LOST || (r == BATCHD_OK && same(b->device_data, copy, room, n, "at first", b));
	if (hold_us)
		usleep((useconds_t)(rand() % (int)hold_us));
	ok = ok && (r == BATCHD_E_LOST || same(b->device_data, copy, room, n, "after a while", b));
	ok = ok && memcmp(copy, b->data, n) == 0;
	free(copy);
	free(room);
	if (r == BATCHD_OK && ok)
		r = batchd_release(l, b->slot, b->generation);
	if (r == BATCHD_E_LOST)
		return 0; /* the next batchd_next reports why */
	return r != BATCHD_OK ? fail(batchd_code_name(r), batchd_error(l)) : !ok;
}

static int on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	static char last[64];
	(void)arg;
	(void)done;
	(void)total;
	if (strcmp(phase, last))
		printf("phase: %s\n", phase);
	snprintf(last, sizeof(last), "%s", phase);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "job", 1, NULL, 'j' },   { "share", 0, NULL, 's' },
						 { "rank", 1, NULL, 'r' },  { "world", 1, NULL, 'w' },
						 { "batch", 1, NULL, 'b' }, { "hold-us", 1, NULL, 'h' },
						 { "seed", 1, NULL, 'S' },  { "device", 1, NULL, 'd' },
						 { "epoch", 1, NULL, 'e' }, { "reconnect-ms", 1, NULL, 'R' },
						 { "stay", 0, NULL, 'y' },  { "progress", 0, NULL, 'p' },
						 { "leave", 0, NULL, 'l' }, { 0 } };
	struct batchd_options o;
	struct batchd_loader *l;
	struct batchd_info info = { .size_bytes = sizeof(info) };
	struct batchd_batch b = { .size_bytes = sizeof(b) };
	unsigned hold_us = 0;
	bool stay = false, leave = false;
	uint64_t epoch = 0;
	char err[512] = "";
	int c, r, exit_code = 0;
	batchd_options_init(&o);
	o.device = "cuda";
	o.batch_size = 16;
	o.reconnect_ms = 0;
	o.on_event = on_event;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			o.job = optarg;
			break;
		case 's':
			o.mode = BATCHD_SHARE;
			break;
		case 'r':
			o.rank = atoi(optarg);
			break;
		case 'w':
			o.world_size = (uint32_t)atoi(optarg);
			break;
		case 'b':
			o.batch_size = (uint32_t)atoi(optarg);
			break;
		case 'h':
			hold_us = (unsigned)atoi(optarg);
			break;
		case 'S':
			srand((unsigned)atoi(optarg));
			break;
		case 'd':
			o.device = optarg;
			break;
		case 'e':
			epoch = (uint64_t)atoll(optarg);
			break;
		case 'R':
			o.reconnect_ms = (uint32_t)atoi(optarg);
			break;
		case 'y':
			stay = true;
			break;
		case 'l':
			leave = true;
			break;
		case 'p':
			o.on_progress = on_progress;
			break;
		default:
			return 2;
		}
	}
	if (argc - optind != 2)
		return 2;
	o.dataset = argv[optind];
	int n = atoi(argv[optind + 1]);
	if ((r = batchd_open(&o, &l, err, sizeof(err))) < 0)
		return fail(batchd_code_name(r), err);
	batchd_get_info(l, &info);
	cuda_device device;
	use_gpu(info.device_ordinal, &device);
	printf("attached\n");
	fflush(stdout);
	r = batchd_start(l, epoch, 0, 0, NULL);
	for (int i = 0; i < n && r >= 0 && !exit_code; i++) {
		while ((r = batchd_next(l, &b, BATCHD_FOREVER)) == BATCHD_END)
			if ((r = batchd_start(l, ++epoch, 0, 0, NULL)) < 0)
				break;
		if (r == BATCHD_OK)
			exit_code = look_at(l, &b, &info, hold_us);
	}
	if (r < 0 && !exit_code)
		exit_code = fail(batchd_code_name(r), batchd_error(l));
	fflush(stdout);
	while (exit_code && stay && getchar() != EOF)
		;
	if (!exit_code)
		printf("%d batches, %s, %s\n", n,
		       info.device_path == BATCHD_DEVICE_IPC      ? "ipc"
		       : info.device_path == BATCHD_DEVICE_VMM_FD ? "vmm-fd"
								  : "copy",
		       info.device_reason);
	if (leave)
		return exit_code;
	batchd_close(l);
	CU(ctx_set_current(NULL));
	CU(primary_ctx_release(device));
	return exit_code;
}
