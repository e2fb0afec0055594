/* See clock-sample.h. A shortage of rows is divided by what the workers do. As far as they work on the trainer's rows, it
 * waits for them, and their stages say with what; as far as they wait for working memory, so does the trainer; as far as
 * they have nothing to do, while rows wait for their input, it waits for the reading. */
#include "batch/clock-sample.h"

enum { RECENT_SECONDS = 10 };

static double less(double a, double b)
{
	return a < b ? a : b;
}

static double rest(double a, double b)
{
	return a > b ? a - b : 0;
}

struct clock_sample clock_sample_of(enum clock_state state)
{
	struct clock_sample x = { .part = { 0 } };
	x.part[state] = 1;
	return x;
}

/* No worker is at the rows now, though none lacks its input: each is at other rows, or is about to begin, or the last row
 * is done. What the workers lately did for the trainer counts. */
static void divide_by_recent(struct clock_sample *x, bool copies, const struct state_clock *c)
{
	struct clock_times t;
	state_clock_last(c, RECENT_SECONDS, &t);
	double read = (double)t.work_us[WORK_READ], decode = (double)t.work_us[WORK_DECODE],
	       transform = (double)t.work_us[WORK_TRANSFORM], all = read + decode + transform;
	x->part[CLOCK_READ] = all > 0 ? read / all : copies;
	x->part[CLOCK_DECODE] = all > 0 ? decode / all : !copies;
	x->part[CLOCK_TRANSFORM] = all > 0 ? transform / all : 0;
}

/* With more workers than processors, some of them may wait while all processors are at work; then nothing is lost. Returns
 * the part that counts of so many workers that wait. */
static double part_that_lacks(const struct pool_look *look, double running, double lack)
{
	double n = look->n_workers, n_processors = look->n_processors;
	if (n_processors <= 0 || n_processors >= n || lack <= 0)
		return 1;
	return less(1, rest(n_processors, running) / n_processors * n / lack);
}

struct clock_sample clock_sample_of_rows(const struct pool_look *look, bool copies, const struct state_clock *c)
{
	double read = look->n_at[STAGE_READ], decode = look->n_at[STAGE_DECODE],
	       transform = look->n_at[STAGE_TRANSFORM], memory = look->n_at[STAGE_MEMORY], idle = look->n_idle;
	*(copies ? &read : &decode) += look->n_at[STAGE_NONE];
	double own = read + decode + transform, running = own + look->n_others_running;
	double usable = look->n_processors ? less(idle, rest(look->n_processors, running)) : idle;
	struct clock_sample x = { .work = { [WORK_READ] = read,
					    [WORK_DECODE] = decode,
					    [WORK_TRANSFORM] = transform,
					    [WORK_MEMORY] = memory,
					    [WORK_OTHERS] = look->n_others,
					    [WORK_IDLE] = usable,
					    [WORK_WAITED] = 1 } };
	double unfed = look->n_tickets ? idle : 0, lacks = part_that_lacks(look, running, memory + unfed);
	double all = own + (memory + unfed) * lacks;
	if (all > 0) {
		x.part[CLOCK_READ] = (read + unfed * lacks) / all;
		x.part[CLOCK_DECODE] = decode / all;
		x.part[CLOCK_TRANSFORM] = transform / all;
		x.part[CLOCK_MEMORY] = memory * lacks / all;
	} else {
		divide_by_recent(&x, copies, c);
	}
	return x;
}

struct clock_sample clock_sample_of_shortage(enum shortage shortage)
{
	static const enum clock_state states[] = {
		[SHORTAGE_NONE] = CLOCK_BUSY,    [SHORTAGE_ROWS] = CLOCK_DECODE,       [SHORTAGE_COPY] = CLOCK_GPU_COPY,
		[SHORTAGE_ORDER] = CLOCK_ORDER,  [SHORTAGE_PRODUCER] = CLOCK_PRODUCER, [SHORTAGE_PEER] = CLOCK_PEER,
		[SHORTAGE_MEMORY] = CLOCK_MEMORY
	};
	return clock_sample_of(states[shortage]);
}
