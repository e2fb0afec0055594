/* The wire: one protobuf-c message per SOCK_SEQPACKET packet, with file descriptors beside it. Shared by the daemon,
 * the client library and the tools.
 *
 * README.md in this folder explains the messages. This file has the limits, sends and receives one packet, and checks
 * that a packet is an acceptable message. It allocates nothing from the heap, logs nothing and keeps no state. */
#ifndef BATCHD_WIRE_H
#define BATCHD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "batchd.pb-c.h"
#include "sources.h"

enum {
	WIRE_VERSION = 9,
	WIRE_LEAST_VERSION = 9, /* no older version is in use */

	/* A packet. The kernel's default socket buffer holds three of these; larger answers (classes, status) come in
	 * several packets. */
	WIRE_MAX_BYTES = 65536,
	WIRE_MAX_FDS = SOURCES_MAX_FDS, /* with Open */

	/* Strings, in bytes without the final NUL. A program's or a field's name goes into log lines. */
	WIRE_MAX_PROGRAM = 64,
	WIRE_MAX_FIELD = 64,
	WIRE_MAX_JOB = 128,
	WIRE_MAX_DATASET = 8256,    /* as a text: "npy:" and two paths of PATH_MAX, or a list of shorter ones */
	WIRE_MAX_OPTIONS = 256,     /* of a data set, and its fields */
	WIRE_MAX_TRANSFORM = 16384, /* some 300 ops of JSON, more than a person writes by hand */
	WIRE_MAX_PHASE = 64,
	WIRE_MAX_PRODUCER = 64,    /* a producer's name */
	WIRE_MAX_CLASS_NAME = 255, /* NAME_MAX: classes are folders */
	WIRE_MAX_TEXT = 4096,      /* of an error; BAD_DATA lists files */

	/* Counts. An index takes up to 10 bytes, so that 4096 of them fit a packet with room to spare. */
	WIRE_MAX_INDICES = 4096,
	WIRE_MAX_CLASSES = 4096, /* names in one packet; 65536 bytes hold about 250 of the longest */
	WIRE_MAX_DIMS = 8,
	WIRE_MAX_FIELDS = 64, /* of a sample */
	WIRE_MAX_FIELD_NAME = 63,
	WIRE_MAX_CHANNELS = 3,   /* of mean and std */
	WIRE_MAX_STATUS = 61440, /* bytes of JSON in one packet */
	WIRE_MAX_LOADS = 64,     /* slots for single images */

	/* Sizes that CUDA defines. */
	WIRE_UUID_BYTES = 16,
	WIRE_IPC_HANDLE_BYTES = 64,
	WIRE_DEVICE_ALIGN = 256, /* of a slot, its labels and its indices on the device */
	WIRE_MAX_REASON = 512,

	/* Memory for one unpacked message: protobuf-c has no limit of its own, and a packet of empty sub-messages grows
	 * 76-fold. */
	WIRE_ARENA_BYTES = 512 * 1024
};

/* ---- making ---- */

/* A message with one body, for the block it stands in: WIRE_SERVER(BATCH, batch, &b), by the case and the member of the
 * body, which is borrowed. */
#define WIRE_SERVER(CASE, member, value) \
	(&(Batchd__Wire__ServerMessage){ .base = PROTOBUF_C_MESSAGE_INIT(&batchd__wire__server_message__descriptor), \
					 .body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_##CASE, \
					 .member = (value) })
#define WIRE_CLIENT(CASE, member, value) \
	(&(Batchd__Wire__ClientMessage){ .base = PROTOBUF_C_MESSAGE_INIT(&batchd__wire__client_message__descriptor), \
					 .body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_##CASE, \
					 .member = (value) })

/* ---- memory for unpacking ---- */

/* A block that holds unpacked messages. Each unpack starts it afresh, so a message is valid until the next unpack with
 * the same arena and is never freed by itself. One thread at a time. About 512 KiB: not for the stack. */
struct wire_arena {
	ProtobufCAllocator allocator;
	size_t used;
	bool exhausted;
	char why[128]; /* what was wrong with the last message */
	_Alignas(16) unsigned char block[WIRE_ARENA_BYTES];
};
void wire_arena_init(struct wire_arena *a);
/* Takes memory from the same block for the caller's own use, e.g. to build an answer. It is valid until the next
 * unpack. NULL when the block is full. */
void *wire_arena_alloc(struct wire_arena *a, size_t size);

/* ---- one packet ---- */

/* Sends m and borrows the fds. flags: MSG_DONTWAIT or 0 (MSG_NOSIGNAL is always added).
 * 0; -EAGAIN: the socket is full (with MSG_DONTWAIT); -EMSGSIZE: more than WIRE_MAX_BYTES; -EPIPE, -ECONNRESET: the
 * peer is gone; -ETOOMANYREFS: too many fds of this user are in flight; -EINTR; -EINVAL: more than WIRE_MAX_FDS. */
int wire_send(int socket, const ProtobufCMessage *m, const int *fds, unsigned n_fds, int flags);

/* Receives one packet. buf: room for *n_bytes (normally WIRE_MAX_BYTES); on success *n_bytes is the packet's size. fds:
 * room for *n_fds (at most WIRE_MAX_FDS; may be 0); on success *n_fds are the caller's to close, close-on-exec. flags:
 * MSG_DONTWAIT or 0.
 * 0; -EAGAIN; -EINTR; -ECONNRESET: the peer closed (an empty packet looks the same and is treated the same); -EMSGSIZE:
 * the packet is larger than the room; -EPROTO: it came with more fds than the room (or than this process may open). On
 * every error *n_bytes and *n_fds are 0 and all fds that came are closed. */
int wire_recv(int socket, void *buf, size_t *n_bytes, int *fds, unsigned *n_fds, int flags);
/* The same for a receiver that must not block, as closing some files does: on errors, too, the caller closes the *n_fds
 * descriptors that came. */
int wire_recv_all(int socket, void *buf, size_t *n_bytes, int fds[WIRE_MAX_FDS], unsigned *n_fds, int flags);
void wire_close_fds(int *fds, unsigned n_fds);

/* Unpacks into the arena (which it resets) and checks what protobuf-c does not: exactly one body; strings within the
 * limits above; the requester's strings in valid UTF-8 without NUL or control characters; counts within limits;
 * enumerations known. 0; -EPROTO: *why (may be NULL; valid until the next unpack) says what is wrong, and the connection
 * must be closed. */
int wire_unpack_client(struct wire_arena *a, const void *bytes, size_t n_bytes, const Batchd__Wire__ClientMessage **msg,
		       const char **why);
int wire_unpack_server(struct wire_arena *a, const void *bytes, size_t n_bytes, const Batchd__Wire__ServerMessage **msg,
		       const char **why);

/* How many fds come with Opened, at most WIRE_OPENED_FDS, in this order: the slab's; the ring's; the GPU memory's, if
 * its kind has an fd. */
enum { WIRE_OPENED_FDS = 3 };
unsigned wire_opened_fds(const Batchd__Wire__Opened *m);
/* Whether a message of this kind may come with n_fds fds: Open with up to WIRE_MAX_FDS, LoadOpen with one, Filled with
 * one if its batch does not fit its slot, Opened with exactly wire_opened_fds, LoadOpened, Traced and Large with one,
 * Producing with one if it brings a slab, all others with none. */
bool wire_client_fds_ok(const Batchd__Wire__ClientMessage *msg, unsigned n_fds);
bool wire_server_fds_ok(const Batchd__Wire__ServerMessage *msg, unsigned n_fds);

/* ---- names and addresses ---- */

/* "OK", "PROTOCOL", ... as in batchd.proto; "UNKNOWN" for others. Static. */
const char *wire_code_name(Batchd__Wire__ErrorCode code);
/* "Hello", "Open", ...; for log lines. Static. */
const char *wire_client_name(const Batchd__Wire__ClientMessage *msg);
const char *wire_server_name(const Batchd__Wire__ServerMessage *msg);
/* At most max bytes, valid UTF-8 (no overlong form, no surrogate), no control characters. */
bool wire_text_ok(const char *text, size_t n_bytes, size_t max);

/* Fills in the address of a socket file. 0, -EINVAL: empty; -ENAMETOOLONG: over 107 bytes. */
int wire_address(const char *path, struct sockaddr_un *address, socklen_t *n_bytes);

#endif
