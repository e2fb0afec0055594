/* Single images for a client: LoadOpen, Load. Loop thread only. */
#ifndef BATCHD_SINGLE_IMAGES_H
#define BATCHD_SINGLE_IMAGES_H

#include <jansson.h>

#include "server/session-message.h"

/* Takes the descriptor. The answer comes later, as LoadOpened or as the session's end. 0 or REFUSED. */
int single_images_on_open(struct session *s, const struct message *m, struct refusal *why);
/* 0 or REFUSED: the client has broken the rules. What is wrong with the image goes into Loaded. */
int single_images_on_load(struct session *s, const struct message *m, struct refusal *why);
/* The connection has ended; what is under way ends by itself. */
void single_images_on_closed(struct session *s);
/* For the status; NULL: the session loads no images. */
json_t *single_images_status_json(const struct session *s);

#endif
