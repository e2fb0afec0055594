/* See kept-fds.h. A lock and a list, because a data set takes each of its descriptors once. */
#include "dataset/kept-fds.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/list.h"

enum { MOST = 8192, LIMIT_PART = 2 /* of RLIMIT_NOFILE, if that is less */ };

struct keeper {
	struct keeper *next;
	uid_t uid;
	unsigned n; /* freed at 0 */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct keeper *keepers; /* under the lock, like the next */
static unsigned n_kept;

static unsigned most(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / LIMIT_PART > MOST)
		return MOST;
	return (unsigned)(limit.rlim_cur / LIMIT_PART);
}

static struct keeper *find_keeper(uid_t uid)
{
	struct keeper *k = keepers;
	while (k && k->uid != uid)
		k = k->next;
	return k;
}

static struct keeper *make_keeper(uid_t uid)
{
	struct keeper *k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->uid = uid;
	list_push(&keepers, k, next);
	return k;
}

bool kept_fds_take(uid_t uid)
{
	pthread_mutex_lock(&lock);
	struct keeper *k = find_keeper(uid);
	unsigned all = most(), left = all > n_kept ? all - n_kept : 0;
	bool may = (k ? k->n : 0) < left;
	if (may && !k)
		may = (k = make_keeper(uid)) != NULL;
	if (may) {
		k->n++;
		n_kept++;
	}
	pthread_mutex_unlock(&lock);
	return may;
}

void kept_fds_give(uid_t uid)
{
	pthread_mutex_lock(&lock);
	struct keeper *k = find_keeper(uid);
	assert(k && k->n > 0 && n_kept > 0);
	n_kept--;
	if (--k->n == 0) {
		list_remove(&keepers, k, next);
		free(k);
	}
	pthread_mutex_unlock(&lock);
}
