#include "loader/links.h"

struct link *links_find(const struct batchd_loader *l, uint64_t generation)
{
	uint64_t id = generation >> LINK_ID_SHIFT;

	if (!l->link || l->link->id == id)
		return l->link;
	for (struct link *k = l->retired; k; k = k->next)
		if (k->id == id)
			return k;
	return NULL;
}

struct link *links_retire(struct batchd_loader *l, struct link *old)
{
	link_detach(old);
	if (!old->n_leased)
		return old;
	old->next = l->retired;
	l->retired = old;
	return NULL;
}

/* Removes a link from the list of retired links. */
static void links_forget(struct batchd_loader *l, struct link *over)
{
	struct link **at = &l->retired;

	while (*at != over)
		at = &(*at)->next;
	*at = over->next;
}

void links_end(struct batchd_loader *l, struct link *k)
{
	if (k == l->link || k->n_leased)
		return;
	links_forget(l, k);
	link_destroy(k);
}

bool links_release(struct batchd_loader *l, uint32_t slot, uint64_t generation)
{
	struct link *k = links_find(l, generation);

	if (!k || !link_release(k, slot, generation & LINK_GENERATIONS))
		return false;
	links_end(l, k);
	return true;
}

/* ---- with a GPU ---- */

struct link *links_take_idle(struct batchd_loader *l)
{
	struct link **at = &l->retired, *k, *over = NULL;

	while ((k = *at)) {
		if (!k->gpu || !k->gpu->ops->is_idle(k->gpu)) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		k->next = over;
		over = k;
	}
	return over;
}

void links_destroy(struct link *k)
{
	for (struct link *next; k; k = next) {
		next = k->next;
		link_destroy(k);
	}
}

int links_collect(struct batchd_loader *l, bool *more, struct fault *f)
{
	struct link *over;
	int r;

	pthread_mutex_lock(&l->lock);
	r = l->link->gpu->ops->collect(l->link->gpu, more, f);
	over = links_take_idle(l);
	pthread_mutex_unlock(&l->lock);
	links_destroy(over);
	return r;
}
