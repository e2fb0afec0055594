/* What the parts of `batchctl tune` share: trials, each a setting that is measured several times. */
#ifndef BATCHCTL_TUNE_H
#define BATCHCTL_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <jansson.h>

enum { TUNE_MOST_TRIALS = 48, TUNE_MOST_ROUNDS = 9 };

enum tune_group { TUNE_WORKERS, TUNE_SLOTS, TUNE_CACHE, TUNE_DTYPE, TUNE_PIN, TUNE_TORCH, TUNE_N_GROUPS };
extern const char *const tune_group_names[TUNE_N_GROUPS]; /* "workers", ... */

struct tune_trial {
	enum tune_group group;
	char value[24];                /* "4", "auto", "off", "float16" */
	uint64_t workers;              /* 0: the daemon decides; of PyTorch's loader, its num_workers */
	uint64_t slots;                /* 0: the daemon decides */
	const char *dtype;             /* NULL: float32 */
	bool on_gpu;                   /* batches go to a GPU */
	bool pinned;                   /* the memory that they are copied from is locked */
	bool cached;                   /* caches are on, and epochs after the first are measured */
	double rate[TUNE_MOST_ROUNDS]; /* images per second */
	unsigned n_rounds;
	double median;     /* of rate; 0: not measured */
	double cpu_ms;     /* per image, of the last round; negative: not known */
	bool slow;         /* its last measurement was too short: no batch came, or no second epoch */
	char problem[200]; /* why it could not be measured */
};

struct tune_choice {
	uint64_t workers, slots;         /* 0: auto */
	bool pin_off, pin_on;            /* neither: auto */
	bool decoded_off;                /* the decoded cache costs more than it brings */
	char reason[TUNE_N_GROUPS][320]; /* a sentence for each group; "": not measured */
};

/* The Python process that measures PyTorch's loader. Zeroed: there is none. */
struct tune_torch {
	pid_t pid;
	FILE *to, *from;
	int said; /* what it writes to standard error */
};

/* A job that runs, whose data set and pipeline are measured. */
struct tune_job {
	const char *name; /* NULL: there is none */
	char *dataset, *transform;
	char dtype[16], layout[16]; /* "": as bench decides */
	char verdict[512];          /* of the trainer that has waited longest; "": none yet */
	uint64_t at_ns;
	double delivered;      /* samples, at at_ns */
	double before, beside; /* images per second before the measurements, and while they ran; negative: not known */
};

struct tune {
	const char *dataset, *transform, *svg, *write, *python, *socket;
	uint64_t seconds_ns, rounds, batch_size, most_workers;
	bool no_torch, json, quiet;
	struct tune_job job;
	struct tune_trial trial[TUNE_MOST_TRIALS];
	unsigned n_trials;
	struct tune_choice choice;
	struct tune_torch torch;
};

/* run.c: measures the trial once and adds the round. 0; 1: it cannot be measured, and problem says why; -EINTR. */
int tune_run(const struct tune *t, struct tune_trial *trial);
/* Adds the round that an answer in JSON tells of, and frees the text; NULL: none came. As tune_run. */
int tune_take_answer(struct tune_trial *trial, char *text);
/* The last line of what a program has written to the file `said`. */
void tune_take_last_line(int said, char *problem, size_t problem_size);

/* torch.c: the same of PyTorch's loader. */
int tune_torch_run(struct tune *t, struct tune_trial *trial);
void tune_torch_stop(struct tune *t);

/* job.c: fills in t from the job t->job.name, and looks at its speed. An exit code. */
int tune_job_begin(struct tune *t);
/* After the measurements. */
void tune_job_end(struct tune *t);
void tune_job_print(const struct tune *t);
json_t *tune_job_json(const struct tune *t);
void tune_job_finish(struct tune *t);

/* choice.c: fills in t->choice for the group, from its trials. */
void tune_choose(struct tune *t, enum tune_group group);
double tune_median(const double *values, unsigned n);

/* report.c */
void tune_print(const struct tune *t);
json_t *tune_json(const struct tune *t);
/* 0 or negative errno. */
int tune_write_svg(const struct tune *t, const char *path);
/* Sets `workers` and `slots` in a configuration file, whose other lines stay as they are. 0 or negative errno. */
int tune_write_config(const struct tune *t, const char *path);

#endif
