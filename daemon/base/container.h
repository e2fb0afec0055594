/* From a member to the struct that it is in. */
#ifndef BATCHD_CONTAINER_H
#define BATCHD_CONTAINER_H

#include <stddef.h>
#include <stdint.h>

/* ptr: a pointer to that member in a struct of that type; its type is checked. */
#define container_of(ptr, type, member) \
	({ \
		const __typeof__(((type *)NULL)->member) *member_ = (ptr); \
		(type *)(void *)((char *)(uintptr_t)member_ - offsetof(type, member)); \
	})

#endif
