/* batchctl doctor: problems that prevent batches on a GPU, or batchd itself, on this machine and in the place where
 * doctor runs. */
#include "ctl/doctor/doctor.h"

#include <stdio.h>

#include "ctl/ctl.h"
#include "ctl/term/options.h"

static int doctor_finish(struct doctor *d)
{
	int code;

	if (d->json) {
		code = ctl_print_json("doctor", json_pack("{s:o, s:i, s:i}", "findings", d->findings, "problems",
							  (int)d->n_problems, "notes", (int)d->n_notes));
	} else {
		if (d->n_problems)
			printf("\n%u problem%s.\n", d->n_problems, d->n_problems == 1 ? "" : "s");
		else
			printf("\nNo problems%s.\n", d->n_notes ? "; the notes say what could be better" : "");
		code = ctl_flush("doctor");
	}
	return code == CTL_OK && d->n_problems ? CTL_FAILED : code;
}

int doctor_main(int argc, char **argv)
{
	struct doctor d = { 0 };
	const struct option_spec specs[] = {
		{ "socket", OPTION_TEXT, &d.socket, "PATH",
		  "the daemon at PATH (default $BATCHD_SOCKET, then your own, then the system's)", 0, 0, NULL },
		{ "gpu", OPTION_FLAG, &d.device_wanted, NULL, "a machine without a usable GPU has a problem", 0, 0,
		  NULL },
		{ "json", OPTION_FLAG, &d.json, NULL, "the findings as JSON", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"doctor",
		"",
		"Looks for what stands in the way of batchd here, above all of batches on a GPU, and says what to change.",
		"Run it where trainers run: as their user, in their container.\n"
		"Exit codes: 0 no problem, 1 problems, 2 wrong usage.",
		0,
	};
	int code;

	if (!command_parse(&cmd, specs, argc, argv, NULL, &code))
		return code;
	if (d.json && !(d.findings = json_array())) {
		ctl_complain("doctor", "out of memory");
		return CTL_FAILED;
	}
	doctor_daemon(&d);
	doctor_pinning(&d);
	doctor_numa(&d);
	doctor_system(&d);
	doctor_gpu(&d);
	doctor_nodes(&d);
	doctor_sides(&d);
	return doctor_finish(&d);
}
