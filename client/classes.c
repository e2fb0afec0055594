/* The names of the classes, asked for when somebody wants one. */
#include "loader.h"

#include <stdlib.h>
#include <string.h>

void classes_free(struct batchd_loader *l)
{
	for (uint32_t i = 0; l->classes && i < l->info.n_classes; i++)
		free(l->classes[i]);
	free(l->classes);
	l->classes = NULL;
}

static int ask_classes(struct batchd_loader *l, uint32_t first)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__ClassesRequest body = BATCHD__WIRE__CLASSES_REQUEST__INIT;

	body.first = first;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLASSES;
	m.classes = &body;
	return loader_send(l, &m);
}

/* The names from `first` on, as many as one packet holds; *n says how many. Batches that come first are kept. */
static int take_classes(struct batchd_loader *l, uint32_t first, uint32_t *n)
{
	const Batchd__Wire__ServerMessage *m;
	int r;

	do {
		r = loader_recv(l, 0, &m);
		if (r == 0 && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH)
			r = stream_keep_early(l, m->batch) < 0 ? l->fault.code : BATCHD_AGAIN;
		else if (r == 0 && m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE)
			r = handover_heard_wake(l);
	} while (r == BATCHD_AGAIN);
	if (r < 0)
		return r;
	if (m->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_CLASSES || m->classes->first != first ||
	    !m->classes->n_name || m->classes->n_name > l->info.n_classes - first)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s does not tell its classes",
				 l->connection.address);
	*n = (uint32_t)m->classes->n_name;
	for (uint32_t i = 0; i < *n; i++) {
		l->classes[first + i] = strdup(m->classes->name[i]);
		if (!l->classes[first + i])
			return fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory");
	}
	return 0;
}

static int fetch_classes(struct batchd_loader *l)
{
	uint32_t n = 0;
	int r = 0;

	l->classes = calloc(l->info.n_classes, sizeof *l->classes);
	if (!l->classes)
		return fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory");
	for (uint32_t first = 0; r == 0 && first < l->info.n_classes; first += n) {
		r = ask_classes(l, first);
		if (r == 0)
			r = take_classes(l, first, &n);
	}
	return r;
}

static const char *class_name(struct batchd_loader *l, uint32_t i)
{
	int r;

	if (loader_check(l) < 0 || i >= l->info.n_classes)
		return NULL;
	while (!l->classes) {
		if (l->absence.lost && loader_reconnect(l, BATCHD_FOREVER) < 0)
			return NULL;
		r = fetch_classes(l);
		if (r < 0)
			classes_free(l);
		if (r < 0 && !loader_is_lost(l, r))
			return NULL;
	}
	return l->classes[i];
}

const char *batchd_class(struct batchd_loader *l, uint32_t i)
{
	const char *name;

	if (loader_enter(l) < 0)
		return NULL;
	name = class_name(l, i);
	return loader_leave(l, name ? 0 : BATCHD_E_NOT_FOUND) < 0 ? NULL : name;
}
