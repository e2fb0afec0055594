/* Opening is the same code as the daemon's, so what batchctl says about a data set is what the daemon would find. */
#include "local.h"

#include <stdlib.h>
#include <string.h>

#include "batchd.pb-c.h"
#include "ctl.h"

struct opening {
	struct progress progress;
	enum progress_style style;
	bool begun;
};

static void on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
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

int local_open(const char *command, const char *text, enum progress_style style, struct dataset **out)
{
	const struct data_access access = { .trusted = true };
	struct dataset_error err = { .text = "" };
	struct opening opening = { .style = style };
	char *spec = ctl_dataset_spec(text);
	int r;

	if (!spec) {
		ctl_complain(command, "not enough memory");
		return CTL_FAILED;
	}
	r = dataset_open(&(struct dataset_source){ .spec = spec, .access = &access, .on_progress = on_progress, .progress_arg = &opening },
			 out, &err);
	progress_end(&opening.progress);
	free(spec);
	if (r == 0)
		return CTL_OK;
	ctl_complain(command, "%s", *err.text ? err.text : strerror(-r));
	return exit_of(err.code);
}
