/* Singly linked lists through a member of the items: a pointer to the first item, and in each item a pointer to the
 * next one. An item may be in several lists, by a member for each. Short lists: append and remove walk. */
#ifndef BATCHD_LIST_H
#define BATCHD_LIST_H

#include <assert.h>
#include <stddef.h>

/* first: a pointer to the list's pointer; next: the member's name. */
#define list_push(first, item, next) \
	do { \
		__typeof__(first) first_ = (first); \
		(item)->next = *first_; \
		*first_ = (item); \
	} while (0)

#define list_append(first, item, next) \
	do { \
		__typeof__(first) at_ = (first); \
		while (*at_) \
			at_ = &(*at_)->next; \
		(item)->next = NULL; \
		*at_ = (item); \
	} while (0)

/* The item is in the list. */
#define list_remove(first, item, next) \
	do { \
		__typeof__(first) at_ = (first); \
		while (*at_ && *at_ != (item)) \
			at_ = &(*at_)->next; \
		assert(*at_); \
		*at_ = (item)->next; \
		(item)->next = NULL; \
	} while (0)

#define list_has(first, item, next) \
	({ \
		__typeof__(*(first)) at_ = *(first); \
		while (at_ && at_ != (item)) \
			at_ = at_->next; \
		at_ != NULL; \
	})

#endif
