/* The parts of a cache's memory that its users have. All users with loaders that use a tier have equal shares of it. What
 * one leaves free the others may take; but a user that has less than its share and finds no room takes it from the user
 * that has most, a mapping at a time, down to that user's share. A space of several users counts for each in equal
 * parts. Under list_lock. */
#ifndef BATCHD_CACHE_PARTS_H
#define BATCHD_CACHE_PARTS_H

#include "dataset/cache/impl.h"

/* One more loader of this user uses the space, or one less. Where memory is short the user has no share. */
void cache_parts_use(struct cache *c, struct cache_space *s, uid_t uid);
void cache_parts_unuse(struct cache *c, struct cache_space *s, uid_t uid);
/* After a change of uses or of the tier's budget, and when room was taken or found: decides again which spaces may grow
 * and take. */
void cache_parts_update(struct cache *c, enum cache_tier tier);
/* The space that has to give a mapping for one of s; NULL: s has no right to more. */
struct cache_space *cache_parts_find(struct cache *c, struct cache_space *s);

#endif
