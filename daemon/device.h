/* The GPU that a session wants its batches on: the wish from Open, why it cannot be had, and the way to a device slab of its
 * slots there. A device is a wish: whatever stands in its way becomes a line of text in Opened, and the session goes on
 * with the host slab. Loop thread only. */
#ifndef BATCHD_DEVICE_H
#define BATCHD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/gpus.h"
#include "wire.h"

struct engine;
struct session;
struct slots;

/* Takes the wish from a checked Open, and gives up what cannot work between these two processes. */
void device_wish(struct session *s, const Batchd__Wire__Open *open);
/* Whether the slots, those of a share group, first have to be made as many as they will ever be, as a GPU's thread
 * registers and mirrors them as a whole, and a trainer that copies by itself does. */
bool device_fixes(const struct session *s, const struct slots *slots);
/* Whether the session can be attached to these slots now: it wants no device, cannot have it, or its device slab is open.
 * Otherwise begins to open one, unless that is under way or the slots' memory is still being made, and says so to the
 * trainer, which may be the end of the session; session_advance is called for every session of the job when it has been.
 */
bool device_ready(struct session *s, struct slots *slots);
/* When it has been attached: says where it finds its batches. */
void device_attach(struct session *s);
/* It cannot open what it was told of, for the reason in text (empty: it can): nothing is copied to the GPU for it.
 * Before its first batch; later it is ignored. */
void device_forgo(struct session *s, const char *text);
/* Its part of Opened. The bytes belong to the session and its slots. */
void device_describe(struct session *s, Batchd__Wire__Opened *o);
/* The descriptor that goes with it, the device slab's own; -1: none. */
int device_fd(const struct session *s);
/* Whether the session's process has memory on a GPU open that may not be freed meanwhile, read or not: memory that it
 * mapped by CUDA IPC. Memory that came as a descriptor lives on, and of a GPU that is lost nothing is freed. */
bool device_must_stay(const struct session *s);

/* That GPU can be used no more by this process: ends the sessions that use it, or are about to. */
void device_on_lost(struct engine *e, const struct gpu *gpu, const char *text);

#endif
