/* The daemon's state: one connection, one question, an answer in as many packets as it needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batchd.h"
#include "link/connect.h"

static int status_ask(struct connection *c, struct fault *f)
{
	Batchd__Wire__StatusRequest body = BATCHD__WIRE__STATUS_REQUEST__INIT;

	return connection_send(c, WIRE_CLIENT(STATUS, status, &body), NULL, 0) < 0 ? connection_lost(c, f) : 0;
}

/* Appends one packet's text. Returns whether more will come (1), the text is whole (0), or a code. */
static int status_take_part(struct connection *c, FILE *text, struct fault *f)
{
	const Batchd__Wire__ServerMessage *m;
	int r;

	do
		r = connection_recv(c, 0, &m, NULL, f);
	while (r == BATCHD_AGAIN);
	if (r < 0)
		return r;
	if (m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS)
		return fault_set(f, BATCHD_E_PROTOCOL, "batchd at %s answers a question for its state with %s",
				 c->address, wire_server_name(m));
	if (m->status->json.len && fwrite(m->status->json.data, m->status->json.len, 1, text) != 1)
		return fault_set(f, BATCHD_E_NOMEM, "out of memory");
	return m->status->more;
}

int batchd_status(const char *socket, char **json, char *err, size_t err_size)
{
	struct connection *c = malloc(sizeof *c);
	struct fault f = { 0 };
	size_t n_bytes;
	FILE *text;
	int r;

	*json = NULL;
	text = open_memstream(json, &n_bytes);
	if (!c || !text) {
		if (text)
			fclose(text);
		free(*json);
		free(c);
		*json = NULL;
		fault_set(&f, BATCHD_E_NOMEM, "out of memory");
		return fault_give(&f, err, err_size);
	}
	r = connection_open(c, socket, false, NULL, &f);
	if (r == 0)
		r = status_ask(c, &f);
	while (r == 0 && (r = status_take_part(c, text, &f)) == 1)
		r = 0;
	connection_close(c);
	free(c);
	if ((fclose(text) || !*json) && r == 0) /* the buffer gets its final size now */
		r = fault_set(&f, BATCHD_E_NOMEM, "out of memory");
	if (r < 0) {
		free(*json);
		*json = NULL;
		return fault_give(&f, err, err_size);
	}
	return 0;
}
