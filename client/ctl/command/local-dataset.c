/* Opening uses the daemon's own code, so batchctl's findings about a data set are what the daemon would find. */
#include "ctl/command/local-dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "batchd.pb-c.h"
#include "ctl/ctl.h"
#include "sources.h"

struct opening {
	struct progress progress;
	enum progress_style style;
	bool begun;
};

static void local_dataset_on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	struct opening *o = arg;

	if (!o->begun)
		progress_begin(&o->progress, o->style, phase, "files", total);
	o->begun = true;
	o->progress.total = total;
	progress_update(&o->progress, done);
}

static int exit_of(int wire_code)
{
	switch (wire_code) {
	case BATCHD__WIRE__ERROR_CODE__INVALID:
		return CTL_USAGE;
	case BATCHD__WIRE__ERROR_CODE__NOT_FOUND:
	case BATCHD__WIRE__ERROR_CODE__ACCESS:
		return CTL_UNKNOWN;
	default:
		return CTL_FAILED;
	}
}

/* Without this check a mistyped path would be reported as a wrong kind of data set. */
static int check_path(const char *command, const char *text)
{
	struct stat st;

	if (source_kind_of(text) == SOURCE_KIND__SERVE) {
		ctl_complain(command, "'%s' is made by a producer and has no files to read", text);
		return CTL_USAGE;
	}
	if (strchr(text, ':'))
		return CTL_OK;
	if (stat(text, &st) != 0)
		ctl_complain(command,
			     "'%s': %s; name a directory of class folders, or " SOURCE_FILE_KINDS_TEXT
			     "as in batchctl(1)",
			     text, strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		ctl_complain(
			command,
			"'%s' is a file; say what it is: files:%s if it is a list of images, npy:%s if it is an array",
			text, text, text);
	else
		return CTL_OK;
	return CTL_UNKNOWN;
}

int local_open(const char *command, const char *text, enum progress_style style, struct dataset **out)
{
	const struct data_access access = { .trusted = true };
	struct dataset_error err = { .text = "" };
	struct opening opening = { .style = style };
	char *spec;
	int r = check_path(command, text);

	if (r != CTL_OK)
		return r;
	spec = ctl_dataset_spec(text);
	if (!spec) {
		ctl_complain(command, "not enough memory");
		return CTL_FAILED;
	}
	r = dataset_open(&(struct dataset_source){ .spec = spec,
						   .access = &access,
						   .on_progress = local_dataset_on_progress,
						   .progress_arg = &opening },
			 out, &err);
	progress_end(&opening.progress);
	free(spec);
	if (r == 0)
		return CTL_OK;
	ctl_complain(command, "%s", *err.text ? err.text : strerror(-r));
	return exit_of(err.code);
}
