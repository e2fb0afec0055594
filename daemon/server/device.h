/* The GPU that a session wants its batches on: the wish from Open, the reason if it cannot be granted, and the opening
 * of a device slab of its slots. A device is only a wish: a reason against it becomes a line of text in Opened, and the
 * session uses the host slab. Loop thread only. */
#ifndef BATCHD_DEVICE_H
#define BATCHD_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/gpus.h"
#include "wire.h"

struct engine;
struct session;
struct slots;

/* Takes the wish from a checked Open, and rules out ways that cannot work between these two processes. */
void device_wish(struct session *s, const Batchd__Wire__Open *open);
/* Whether the slots of a share group must first be made up to their final number, because a GPU's thread, or a trainer
 * that copies by itself, registers them as a whole. */
bool device_fixes(const struct session *s, const struct slots *slots);
/* Whether the session can be attached to these slots: it wants no device, cannot have it, or its device slab is open.
 * Otherwise begins to open the device slab, unless that is under way or the slots' memory is still being made, and
 * tells the trainer. When the device slab is open, session_advance is called for every
 * session of the job. */
bool device_ready(struct session *s, struct slots *slots);
/* After the session has been attached: sets its consumer's device slab, if it has one. */
void device_attach(struct session *s);
/* The trainer cannot open the device slab, for the reason in text (empty: it can): nothing is copied to the GPU for it.
 * Valid before its first batch; later it is ignored. */
void device_forgo(struct session *s, const char *text);
/* The trainer leaves before its first batch, to be offered memory of the other kind. */
void device_come_again(struct session *s);
/* Fills the device's fields of Opened. The bytes belong to the session and its slots. */
void device_describe(struct session *s, Batchd__Wire__Opened *o);
/* The descriptor to send with Opened; it belongs to the device slab. -1: none. */
int device_fd(const struct session *s);
/* Whether the session's process has memory of the daemon on a GPU open that must not be freed before the process closes
 * it: memory mapped by CUDA IPC. Memory that came as a descriptor stays valid for the process after the daemon frees it,
 * and nothing on a lost GPU is freed. */
bool device_must_stay(const struct session *s);

/* This process can no longer use that GPU: ends the sessions that use it, or are about to. */
void device_on_lost(struct engine *e, const struct gpu *gpu, const char *text);

#endif
