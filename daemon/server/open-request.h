/* A client's Open, checked and in plain form: names resolved through the configuration, limits and access applied. No
 * side effects. */
#ifndef BATCHD_OPEN_REQUEST_H
#define BATCHD_OPEN_REQUEST_H

#include "config/config.h"
#include "batch/loader.h"
#include "server/refusal.h"
#include "wire.h"

struct requester {
	uid_t uid;
	const gid_t *gids; /* main group first */
	unsigned n_gids;
	bool shares_mounts; /* it is in the daemon's mount namespace: a path means the same in both processes */
	bool lacks_groups;  /* some of them are unknown */
};

struct open_request {
	struct loader_spec spec; /* dataset as text, transform resolved */
	char *text;              /* of the data set, for messages */
	struct Sources
		*asked; /* what the client has sent, which tells jobs apart: a name of the configuration or the data */
	char *served;   /* the name of the producer that makes the data; NULL: the daemon does */
	struct Sources *sources; /* the data to open: those of a configured data set, or as `asked` */
	struct data_access access;
	int32_t rank; /* -1: any */
};

/* n_fds: number of fds that came with it. 0, or REFUSED; the caller finishes *out in either case. */
int open_request_make(const struct config *config, const Batchd__Wire__Open *open, const struct requester *who,
		      unsigned n_fds, struct open_request *out, struct refusal *err);
void open_request_finish(struct open_request *r);
/* Whether a user in the daemon's mount namespace is trusted: root, and the daemon's own user. Root in a container, or
 * in any other mount namespace, is not the root that the daemon's paths belong to. */
bool open_request_may_trust(uid_t uid);
/* Whether the configuration lets the requester use the data set. */
bool open_request_may_use(const struct config_dataset *d, const struct requester *who);

#endif
