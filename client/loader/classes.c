/* The names of the classes, fetched when the trainer asks for one. */
#include "loader/loader.h"
#include "loader/reconnect.h"

#include <stdlib.h>
#include <string.h>

/* Fetches names from `first` on, as many as one packet holds; *n: how many. */
static int fetch_part(struct batchd_loader *l, uint32_t first, uint32_t *n)
{
	Batchd__Wire__ClassesRequest body = BATCHD__WIRE__CLASSES_REQUEST__INIT;
	const Batchd__Wire__ServerMessage *m;
	int r;

	body.first = first;
	r = link_call(l->link, WIRE_CLIENT(CLASSES, classes, &body), "a question for its classes",
		      BATCHD__WIRE__SERVER_MESSAGE__BODY_CLASSES, &m, &l->fault);
	if (r < 0)
		return r;
	if (m->classes->first != first || !m->classes->n_name || m->classes->n_name > l->n_classes - first)
		return fault_set(&l->fault, BATCHD_E_PROTOCOL, "batchd at %s does not tell its classes",
				 l->link->connection.address);
	*n = (uint32_t)m->classes->n_name;
	for (uint32_t i = 0; i < *n; i++) {
		l->classes[first + i] = strdup(m->classes->name[i]);
		if (!l->classes[first + i])
			return fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory");
	}
	return 0;
}

static int fetch_all(struct batchd_loader *l)
{
	uint32_t n = 0;
	int r = 0;

	l->n_classes = l->link->info.n_classes;
	l->classes = calloc(l->n_classes, sizeof *l->classes);
	if (!l->classes)
		return fault_set(&l->fault, BATCHD_E_NOMEM, "out of memory");
	for (uint32_t first = 0; r == 0 && first < l->n_classes; first += n)
		r = fetch_part(l, first, &n);
	return r;
}

static int attempt_fetch(struct batchd_loader *l, void *arg, int left_ms)
{
	int r = fetch_all(l);

	(void)arg;
	(void)left_ms;
	if (r < 0)
		loader_free_classes(l);
	return r;
}

static const char *class_name(struct batchd_loader *l, uint32_t i)
{
	if (loader_check(l) < 0 || i >= l->link->info.n_classes)
		return NULL;
	if (!l->classes && with_link(l, BATCHD_FOREVER, attempt_fetch, NULL) < 0)
		return NULL;
	return i < l->n_classes ? l->classes[i] : NULL;
}

const char *batchd_class(struct batchd_loader *l, uint32_t i)
{
	const char *name;

	if (loader_enter(l) < 0)
		return NULL;
	name = class_name(l, i);
	return loader_leave(l, name ? 0 : BATCHD_E_NOT_FOUND) < 0 ? NULL : name;
}
