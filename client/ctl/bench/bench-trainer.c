/* The other end of trainer.h: a process that runs a training loop without the training.
 *
 * It takes a batch, reads it (or, as most frameworks do, leaves that to later code), gives it back and takes the next.
 * Times are those of CLOCK_MONOTONIC, which all processes share, so that bench can say when the first trainer began and
 * the last ended. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>

#include "batchd.h"
#include "ctl/ctl.h"
#include "image/transform/pipeline.h"
#include "ctl/term/progress.h"

#define TELL_NS 200000000u

struct bench_trainer {
	struct batchd_loader *loader;
	struct batchd_info info;
	size_t row_bytes;
	bool touch;
	uint64_t open_ns, told_ns;
};

struct epoch {
	uint64_t begun_ns, first_ns, ended_ns, cpu_ns;
	uint64_t n_batches, images, n_padding, n_replaced;
	uint64_t *waits_ns; /* of every batch but the first */
	size_t n_waits, capacity;
	int complete;
};

/* Sends a line to bench. False when bench is gone. */
static bool bench_trainer_tell(json_t *event)
{
	bool sent = event && json_dumpf(event, stdout, JSON_COMPACT) == 0;

	putchar('\n');
	json_decref(event);
	return fflush(stdout) == 0 && sent;
}

static int bench_trainer_fail(int code, const char *text)
{
	bench_trainer_tell(json_pack("{s:s, s:i, s:o}", "event", "error", "code", code, "text",
				     ctl_json_text(*text ? text : batchd_code_name(code))));
	return CTL_FAILED;
}

static int on_opening(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	struct bench_trainer *t = arg;
	uint64_t now = progress_now_ns();

	if (!*phase || now - t->told_ns < TELL_NS)
		return 0;
	t->told_ns = now;
	return !bench_trainer_tell(json_pack("{s:s, s:s, s:I, s:I}", "event", "opening", "phase", phase, "done",
					     (json_int_t)done, "total", (json_int_t)total));
}

static uint32_t bench_trainer_integer(const json_t *config, const char *key)
{
	return (uint32_t)json_integer_value(json_object_get(config, key));
}

/* A producer's order is its own, and random windows have no end that could be shuffled. */
static bool can_shuffle(const char *dataset)
{
	return strncmp(dataset, "serve:", 6) != 0 && !strstr(dataset, ",windows=random");
}

static int bench_trainer_open_loader(struct bench_trainer *t, const json_t *config)
{
	uint64_t begun = progress_now_ns();
	struct batchd_options o;
	char err[1024] = "";
	int r;

	batchd_options_init(&o);
	o.reconnect_ms = 0; /* a measurement across a restart would be worthless */
	o.socket = json_string_value(json_object_get(config, "socket"));
	o.dataset = json_string_value(json_object_get(config, "dataset"));
	o.transform = json_string_value(json_object_get(config, "transform"));
	o.device = json_string_value(json_object_get(config, "device"));
	o.job = json_string_value(json_object_get(config, "job"));
	o.dtype = (enum batchd_dtype)bench_trainer_integer(config, "dtype");
	o.layout = (enum batchd_layout)bench_trainer_integer(config, "layout");
	o.mode = (enum batchd_mode)bench_trainer_integer(config, "mode");
	o.batch_size = bench_trainer_integer(config, "batch_size");
	o.rank = (int32_t)bench_trainer_integer(config, "rank");
	o.world_size = bench_trainer_integer(config, "world_size");
	o.num_workers = bench_trainer_integer(config, "num_workers");
	o.n_slots = bench_trainer_integer(config, "n_slots");
	o.seed = (uint64_t)json_integer_value(json_object_get(config, "seed"));
	o.shuffle = can_shuffle(o.dataset);
	o.autostart = 0;
	o.program = "batchctl bench";
	o.on_progress = on_opening;
	o.progress_arg = t;
	r = batchd_open(&o, &t->loader, err, sizeof err);
	if (r < 0)
		return bench_trainer_fail(r, err);
	t->open_ns = progress_now_ns() - begun;
	t->info.size_bytes = sizeof t->info;
	batchd_get_info(t->loader, &t->info);
	t->row_bytes = dtype_bytes((enum dtype)t->info.dtype);
	for (uint32_t i = 0; i < t->info.n_dims; i++)
		t->row_bytes *= t->info.shape[i];
	t->touch = json_is_true(json_object_get(config, "touch"));
	return CTL_OK;
}

static uint64_t own_cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * 1000000000u +
	       ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000u;
}

static void bench_trainer_touch(const void *data, size_t n_bytes)
{
	const uint64_t *words = data; /* a slot begins at a page */
	uint64_t sum = 0;

	for (size_t i = 0; i < n_bytes / sizeof *words; i++)
		sum += words[i];
	__asm__ volatile("" : : "r"(sum)); /* keeps the compiler from dropping the sum */
}

static bool note_wait(struct epoch *e, uint64_t ns)
{
	if (e->n_waits == e->capacity) {
		size_t capacity = e->capacity ? 2 * e->capacity : 1024;
		uint64_t *grown = realloc(e->waits_ns, capacity * sizeof *grown);

		if (!grown)
			return false;
		e->waits_ns = grown;
		e->capacity = capacity;
	}
	e->waits_ns[e->n_waits++] = ns;
	return true;
}

/* Takes one batch's numbers. False: no memory for them, or bench is gone. */
static bool bench_trainer_take(struct bench_trainer *t, struct epoch *e, const struct batchd_batch *b)
{
	uint64_t now = progress_now_ns();
	bool fine = true;

	if (e->n_batches++)
		fine = note_wait(e, b->wait_ns);
	else
		e->first_ns = now;
	if (t->touch)
		bench_trainer_touch(b->data, b->n_rows * t->row_bytes);
	e->images += b->n_rows;
	e->n_padding += b->n_padding;
	e->n_replaced += b->n_replaced;
	if (fine && now - t->told_ns >= TELL_NS) {
		t->told_ns = now;
		fine = bench_trainer_tell(
			json_pack("{s:s, s:I}", "event", "progress", "images", (json_int_t)e->images));
	}
	return fine;
}

/* Milliseconds until then, at least 0; -1 for no limit. */
static int until_ms(uint64_t until_ns)
{
	uint64_t now = progress_now_ns();

	if (!until_ns)
		return BATCHD_FOREVER;
	return until_ns > now ? (int)((until_ns - now) / 1000000) + 1 : 0;
}

/* 0 or a batchd code. */
static int bench_trainer_run_epoch(struct bench_trainer *t, struct epoch *e, uint64_t epoch, uint64_t until_ns)
{
	struct batchd_batch b = { .size_bytes = sizeof b };
	uint64_t cpu = own_cpu_ns();
	int r, released;

	e->begun_ns = progress_now_ns();
	r = batchd_start(t->loader, epoch, 0, 0, NULL);
	if (r < 0)
		return r;
	while ((r = batchd_next(t->loader, &b, until_ms(until_ns))) == BATCHD_OK) {
		bool fine = bench_trainer_take(t, e, &b);

		released = batchd_release(t->loader, b.slot, b.generation);
		if (!fine || released < 0)
			return fine ? released : BATCHD_E_NOMEM;
		if (until_ns && progress_now_ns() >= until_ns) {
			r = b.last ? BATCHD_END : BATCHD_AGAIN;
			break;
		}
	}
	e->ended_ns = progress_now_ns();
	e->cpu_ns = own_cpu_ns() - cpu;
	e->complete = r == BATCHD_END;
	return r < 0 ? r : 0;
}

static bool tell_epoch(const struct bench_trainer *t, const struct epoch *e, uint64_t epoch)
{
	json_t *waits = json_array();

	for (size_t i = 0; i < e->n_waits; i++)
		json_array_append_new(waits, json_integer((json_int_t)e->waits_ns[i]));
	return bench_trainer_tell(json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "event", "epoch", "epoch",
		(json_int_t)epoch, "begun_ns", (json_int_t)e->begun_ns, "first_ns",
		(json_int_t)(e->n_batches ? e->first_ns - e->begun_ns : 0), "ended_ns", (json_int_t)e->ended_ns,
		"cpu_ns", (json_int_t)e->cpu_ns, "batches", (json_int_t)e->n_batches, "images", (json_int_t)e->images,
		"bytes", (json_int_t)(e->images * t->row_bytes), "padding", (json_int_t)e->n_padding, "replaced",
		(json_int_t)e->n_replaced, "complete", e->complete, "waits_ns", waits));
}

/* Does what bench asks until bench closes the pipe. */
static int bench_trainer_serve(struct bench_trainer *t)
{
	char *line = NULL;
	size_t size = 0;
	int code = CTL_OK;

	while (code == CTL_OK && getline(&line, &size, stdin) > 0) {
		json_t *question = json_loads(line, 0, NULL);
		uint64_t epoch = (uint64_t)json_integer_value(json_object_get(question, "epoch"));
		uint64_t until_ns = (uint64_t)json_integer_value(json_object_get(question, "until_ns"));
		struct epoch e = { 0 };
		int r = bench_trainer_run_epoch(t, &e, epoch, until_ns);

		if (r < 0)
			code = bench_trainer_fail(r, batchd_error(t->loader));
		else if (!tell_epoch(t, &e, epoch))
			code = CTL_FAILED;
		free(e.waits_ns);
		json_decref(question);
	}
	free(line);
	return code;
}

int bench_trainer_main(int argc, char **argv)
{
	struct bench_trainer t = { 0 };
	json_t *config = argc == 2 ? json_loads(argv[1], 0, NULL) : NULL;
	int code;

	if (!config) {
		ctl_complain("bench-trainer", "is started by 'batchctl bench', not by hand");
		return CTL_USAGE;
	}
	prctl(PR_SET_PDEATHSIG, SIGTERM); /* without bench a trainer has no use */
	code = bench_trainer_open_loader(&t, config);
	if (code == CTL_OK &&
	    bench_trainer_tell(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "event", "opened", "open_ns",
					 (json_int_t)t.open_ns, "n_samples", (json_int_t)t.info.n_samples,
					 "n_samples_rank", (json_int_t)t.info.n_samples_rank, "row_bytes",
					 (json_int_t)t.row_bytes, "n_batches", (json_int_t)t.info.n_batches, "window",
					 (json_int_t)t.info.window)))
		code = bench_trainer_serve(&t);
	batchd_close(t.loader);
	json_decref(config);
	return code;
}
