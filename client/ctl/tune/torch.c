/* PyTorch's DataLoader beside batchd, for `batchctl tune`: one Python process for all measurements, as importing torch
 * takes longer than many of them. It gets a line for each, and answers with a line of JSON. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/tune/tune.h"

/* Its loop is a trainer that takes batches and does nothing. The stub stands for compiled operators that no transform
 * needs, without which some builds of torchvision cannot be imported. */
static const char torch_script[] =
	"import json, sys, time, types\n"
	"folder, transform, batch = sys.argv[1:]\n"
	"import torch\n"
	"try:\n"
	"    import torchvision.transforms.v2\n"
	"except RuntimeError:\n"
	"    for name in [n for n in sys.modules if n.partition('.')[0] == 'torchvision']: del sys.modules[name]\n"
	"    sys.modules['torchvision._meta_registrations'] = types.ModuleType('torchvision._meta_registrations')\n"
	"import torchvision\n"
	"from torchvision.transforms import v2\n"
	"crop = [v2.Resize(256), v2.CenterCrop(224)] if transform == 'val224' else [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]\n"
	"ops = v2.Compose(crop + [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])\n"
	"data = torchvision.datasets.ImageFolder(folder, ops)\n"
	"def measure(workers, pin, seconds):\n"
	"    loader = torch.utils.data.DataLoader(data, int(batch), shuffle=True, num_workers=workers, pin_memory=pin, persistent_workers=workers > 0)\n"
	"    next(iter(loader))\n" /* processes and tables */
	"    began, n = time.perf_counter(), 0\n"
	"    while True:\n"
	"        for images, _ in loader:\n"
	"            n += len(images)\n"
	"            if time.perf_counter() - began > seconds:\n"
	"                return n / (time.perf_counter() - began)\n"
	"for line in sys.stdin:\n"
	"    workers, pin, seconds = line.split()\n"
	"    print(json.dumps({'images_per_s': measure(int(workers), pin == '1', float(seconds))}), flush=True)\n"
	"import os; os._exit(0)\n";

/* In the child; does not return. */
static void become_python(const struct tune *t, const char *batch, int in, int out, int said)
{
	const char *folder = !strncmp(t->dataset, "imagefolder:", 12) ? t->dataset + 12 : t->dataset;

	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(said, STDERR_FILENO);
	execlp(t->python, t->python, "-c", torch_script, folder, t->transform ? t->transform : "train224", batch,
	       (char *)NULL);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", t->python, strerror(errno));
	_exit(127);
}

static bool start(struct tune *t)
{
	int in[2], out[2];
	char batch[24];

	snprintf(batch, sizeof batch, "%llu", (unsigned long long)t->batch_size);
	t->torch.said = memfd_create("said", MFD_CLOEXEC);
	if (t->torch.said < 0 || pipe2(in, O_CLOEXEC) < 0)
		return false;
	if (pipe2(out, O_CLOEXEC) < 0) {
		close(in[0]), close(in[1]);
		return false;
	}
	t->torch.pid = fork();
	if (t->torch.pid == 0)
		become_python(t, batch, in[0], out[1], t->torch.said);
	close(in[0]);
	close(out[1]);
	t->torch.to = fdopen(in[1], "w");
	t->torch.from = fdopen(out[0], "r");
	return t->torch.pid > 0 && t->torch.to && t->torch.from;
}

void tune_torch_stop(struct tune *t)
{
	if (t->torch.to)
		fclose(t->torch.to);
	if (t->torch.from)
		fclose(t->torch.from);
	if (t->torch.pid > 0)
		while (waitpid(t->torch.pid, NULL, 0) < 0 && errno == EINTR)
			;
	if (t->torch.said > 0)
		close(t->torch.said);
	t->torch = (struct tune_torch){ 0 };
}

int tune_torch_run(struct tune *t, struct tune_trial *trial)
{
	char *line = NULL;
	size_t size = 0;
	bool asked;

	snprintf(trial->problem, sizeof trial->problem, "cannot start a process");
	if (!t->torch.pid && !start(t)) {
		tune_torch_stop(t);
		return 1;
	}
	signal(SIGPIPE, SIG_IGN); /* Python ends where it has no torch */
	asked = fprintf(t->torch.to, "%llu %d %.3f\n", (unsigned long long)trial->workers, trial->pinned,
			(double)t->seconds_ns / 1e9) > 0 &&
		fflush(t->torch.to) == 0;
	if (!asked || getline(&line, &size, t->torch.from) <= 0) {
		free(line);
		while (waitpid(t->torch.pid, NULL, 0) < 0 && errno == EINTR)
			;
		t->torch.pid = 0;
		tune_take_last_line(t->torch.said, trial->problem, sizeof trial->problem);
		tune_torch_stop(t);
		return 1;
	}
	return tune_take_answer(trial, line);
}
