/* What the subcommands of batchctl share: entry points, exit codes and complaints. */
#ifndef BATCHCTL_CTL_H
#define BATCHCTL_CTL_H

#include <stdbool.h>

#include <jansson.h>

/* As systemctl's: 3 and 4 are the LSB's "not running" and "unknown". */
enum ctl_exit {
	CTL_OK = 0,
	CTL_FAILED = 1,      /* it was done and the result is bad, or it failed on the way */
	CTL_USAGE = 2,       /* the command line makes no sense */
	CTL_NOT_RUNNING = 3, /* no daemon answers */
	CTL_UNKNOWN = 4,     /* the object in question was not found or may not be read */
};

/* argv[0] is the subcommand's name. Each returns an enum ctl_exit. */
int status_main(int argc, char **argv);
int bench_main(int argc, char **argv);
int bench_trainer_main(int argc, char **argv); /* what bench spawns; not for people */
int trace_main(int argc, char **argv);
int tune_main(int argc, char **argv);
int verify_main(int argc, char **argv);
int index_main(int argc, char **argv);
int preview_main(int argc, char **argv);
int top_main(int argc, char **argv);
int load_main(int argc, char **argv);
int sample_data_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
int doctor_export_main(int argc, char **argv); /* what doctor spawns; not for people */

struct subcommand {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary; /* NULL: internal */
};
/* What the shells' completion calls. The list ends with a name of NULL. */
int complete_print(const struct subcommand *commands, int argc, char **argv);

/* "batchctl NAME: text" on stderr, control characters made harmless. */
void ctl_complain(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Ends a result on stdout: CTL_OK, or CTL_FAILED with a complaint if not all of it could be written (a full disk, a
 * closed pipe). */
int ctl_flush(const char *command);

/* The exit code that says what a batchd_code means for a command. */
int ctl_exit_of(int batchd_code);

/* Replaces control characters (also those that would move a terminal's cursor) in place: other users choose file and
 * program names. */
void ctl_make_printable(char *text);

/* "imagefolder:" before `text` when that names a directory and has no prefix, else `text`. The caller frees the result;
 * NULL when memory is short. */
char *ctl_dataset_spec(const char *text);

/* A JSON string of any bytes: in text that is not UTF-8 each non-ASCII byte becomes '?'. NULL when memory is short. */
json_t *ctl_json_text(const char *text);
/* Prints a result and ends it, as ctl_flush does; takes ownership of `result`. NULL means that memory was short. */
int ctl_print_json(const char *command, json_t *result);

/* Processors this process may run on; at least 1. */
unsigned ctl_n_cpus(void);

#endif
