#include "config/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail_file(const char *path, int error, struct config_error *err)
{
	snprintf(err->text, sizeof err->text, "%.400s: cannot be read: %s", path, strerror(error));
	return -error;
}

int config_file_bytes(const char *path, char **bytes, size_t *n_bytes, struct config_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* O_NONBLOCK: a FIFO must not block the
	                                                                    * start */
	struct stat st;
	size_t n = 0;
	ssize_t k = 0;

	if (fd < 0)
		return fail_file(path, errno, err);

	char *buf = malloc(CONFIG_MAX_BYTES + 1);
	int error = !buf ? ENOMEM : fstat(fd, &st) < 0 ? errno : 0;

	if (!error && !S_ISREG(st.st_mode)) {
		snprintf(err->text, sizeof err->text, "%.400s: is not a regular file", path);
		close(fd);
		free(buf);
		return -EINVAL;
	}
	while (!error && n <= CONFIG_MAX_BYTES && (k = read(fd, buf + n, CONFIG_MAX_BYTES + 1 - n)) != 0)
		if (k > 0)
			n += (size_t)k;
		else if (errno != EINTR)
			error = errno;
	close(fd);
	if (error) {
		free(buf);
		return fail_file(path, error, err);
	}
	if (n > CONFIG_MAX_BYTES) {
		snprintf(err->text, sizeof err->text, "%.400s: is larger than 1 MiB; that is no configuration", path);
		free(buf);
		return -EINVAL;
	}
	*bytes = buf;
	*n_bytes = n;
	return 0;
}

static void texts_finish(struct text_list *list)
{
	struct text *texts = list->entries;

	for (uint32_t i = 0; i < list->n; i++)
		free(texts[i].text);
	free(texts);
}

static void pipelines_finish(struct text_list *list)
{
	struct pipeline_text *pipelines = list->entries;

	for (uint32_t i = 0; i < list->n; i++) {
		free(pipelines[i].name.text);
		free(pipelines[i].transform.text);
	}
	free(pipelines);
}

static void datasets_finish(struct text_list *list)
{
	struct dataset_text *datasets = list->entries;

	for (uint32_t i = 0; i < list->n; i++) {
		free(datasets[i].name.text);
		free(datasets[i].source.text);
		free(datasets[i].transform.text);
		texts_finish(&datasets[i].users);
		texts_finish(&datasets[i].groups);
	}
	free(datasets);
}

void config_file_finish(struct config_file *f)
{
	for (size_t i = 0; i < CONFIG_MAX_CHANGES; i++)
		free(f->scalars[i].text);
	pipelines_finish(&f->pipelines);
	datasets_finish(&f->datasets);
	*f = (struct config_file){ .path = NULL };
}
