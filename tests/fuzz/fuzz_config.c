/* Any bytes as a configuration: no crash, no leak; a refusal is one line that begins with the file's name, and accepted
 * values are in range. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
	if (!ok)
		abort();
}

static void check_accepted(const struct config *c)
{
	struct config_change changes[CONFIG_MAX_CHANGES];

	require((c->socket_mode & 0600) == 0600 && c->socket_mode <= 0777);
	require(c->workers <= 1024 && c->io_threads >= 1 && c->slots != 1 && c->slots <= 64);
	require(c->bad_data >= 0 && c->bad_data <= 1);
	require(c->limits.batch_size >= 1 && c->limits.image_pixels >= 1);
	require(!c->socket || c->socket[0] == '/');
	require(c->n_datasets <= CONFIG_MAX_DATASETS && c->n_pipelines <= CONFIG_MAX_PIPELINES);
	for (uint32_t i = 0; i < c->n_datasets; i++)
		require(config_dataset(c, c->datasets[i].name) == &c->datasets[i]); /* so names are unique */
	for (uint32_t i = 0; i < c->n_pipelines; i++)
		require(config_pipeline(c, c->pipelines[i].name) == c->pipelines[i].transform);
	require(config_diff(c, c, changes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config_error err = { .text = "" };
	struct config c;

	if (config_parse("f.yaml", (const char *)data, size, &c, &err) == 0) {
		check_accepted(&c);
		config_finish(&c);
	} else {
		require(strncmp(err.text, "f.yaml:", 7) == 0);
		require(!strchr(err.text, '\n'));
	}
	return 0;
}
