/* The wire's one packet: pack, send, receive, unpack, check.
 *
 * Two things need care. First, the kernel installs received fds before this file looks at the packet, so every way out
 * of wire_recv accounts for them. Second, protobuf-c trusts its input: it has no limits, returns strings as C strings
 * whatever bytes are in them, and accepts unknown enumeration values. The arena bounds its memory and remembers the
 * size of every allocation, so that a string with a NUL inside differs from a shorter one. The checks at the end bound
 * everything else. */
#include "wire.h"

#include <errno.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- arena ---- */

enum { ARENA_ALIGN = 16 };

/* Before each allocation: the size that was asked for. As large as the alignment. */
struct arena_head {
	alignas(ARENA_ALIGN) size_t size;
};

static void arena_reset(struct wire_arena *a)
{
	a->used = 0;
	a->exhausted = false;
}

void *wire_arena_alloc(struct wire_arena *a, size_t size)
{
	struct arena_head *head;
	size_t room = sizeof a->block - a->used;

	if (size > room || room - size < sizeof *head + ARENA_ALIGN) {
		a->exhausted = true;
		return NULL;
	}
	head = (struct arena_head *)(void *)(a->block + a->used);
	head->size = size;
	a->used += sizeof *head + (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
	return head + 1;
}

static void *on_alloc(void *arena, size_t size)
{
	return wire_arena_alloc(arena, size);
}

static void wire_on_free(void *arena, void *memory)
{
	(void)arena; /* the next unpack frees everything at once */
	(void)memory;
}

void wire_arena_init(struct wire_arena *a)
{
	a->allocator = (ProtobufCAllocator){ .alloc = on_alloc, .free = wire_on_free, .allocator_data = a };
	arena_reset(a);
}

/* ---- one packet ---- */

int wire_send(int socket, const ProtobufCMessage *m, const int *fds, unsigned n_fds, int flags)
{
	unsigned char bytes[WIRE_MAX_BYTES]; /* only the packed size of it is written */
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * WIRE_MAX_FDS)];
	} control = { .room = { 0 } };
	struct iovec iov = { .iov_base = bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (n_fds > WIRE_MAX_FDS)
		return -EINVAL;
	iov.iov_len = protobuf_c_message_get_packed_size(m);
	if (iov.iov_len > sizeof bytes)
		return -EMSGSIZE;
	protobuf_c_message_pack(m, bytes);
	if (n_fds) {
		struct cmsghdr *c;

		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	n = sendmsg(socket, &msg, flags | MSG_NOSIGNAL);
	return n < 0 ? -errno : 0;
}

void wire_close_fds(int *fds, unsigned n_fds)
{
	for (unsigned i = 0; i < n_fds; i++) {
		close(fds[i]);
		fds[i] = -1;
	}
}

/* Collects the fds that came with the packet into got; at most WIRE_MAX_FDS, because the control buffer holds no
 * more. */
static unsigned collect_fds(struct msghdr *msg, int got[WIRE_MAX_FDS])
{
	unsigned n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n_here;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n_here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n_here; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (n < WIRE_MAX_FDS)
				got[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

int wire_recv_all(int socket, void *buf, size_t *n_bytes, int fds[WIRE_MAX_FDS], unsigned *n_fds, int flags)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * WIRE_MAX_FDS)];
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = *n_bytes };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room
	};
	ssize_t n;

	*n_bytes = 0;
	*n_fds = 0;
	n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
	/* A peer that closed before it had read everything leaves this error in front of its last message (often the
	 * reason); the kernel reports it once. */
	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	*n_fds = collect_fds(&msg, fds);
	if (n == 0)
		return -ECONNRESET;
	if (msg.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	if (msg.msg_flags & MSG_CTRUNC)
		return -EPROTO;
	*n_bytes = (size_t)n;
	return 0;
}

int wire_recv(int socket, void *buf, size_t *n_bytes, int *fds, unsigned *n_fds, int flags)
{
	int got[WIRE_MAX_FDS];
	unsigned n_got, room = *n_fds;
	int r = wire_recv_all(socket, buf, n_bytes, got, &n_got, flags);

	*n_fds = 0;
	if (r == 0 && n_got > room)
		r = -EPROTO;
	if (r < 0) {
		*n_bytes = 0;
		wire_close_fds(got, n_got);
		return r;
	}
	if (n_got)
		memcpy(fds, got, sizeof *got * n_got);
	*n_fds = n_got;
	return 0;
}

/* ---- checks ---- */

/* Bytes of the UTF-8 sequence at s; 0 if it is invalid. Overlong forms, surrogates and code points above U+10FFFF are
 * invalid. */
static size_t utf8_sequence(const unsigned char *s, size_t room)
{
	uint32_t c = s[0];
	uint32_t least;
	size_t n;

	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c < 0xe0)
		n = 2, c &= 0x1f, least = 0x80;
	else if (c >= 0xe0 && c < 0xf0)
		n = 3, c &= 0x0f, least = 0x800;
	else if (c >= 0xf0 && c < 0xf5)
		n = 4, c &= 0x07, least = 0x10000;
	else
		return 0;
	if (n > room)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

bool wire_text_ok(const char *text, size_t n_bytes, size_t max)
{
	const unsigned char *s = (const unsigned char *)text;

	if (n_bytes > max)
		return false;
	for (size_t i = 0, n; i < n_bytes; i += n) {
		n = utf8_sequence(s + i, n_bytes - i);
		if (n == 0 || s[i] < 0x20 || s[i] == 0x7f)
			return false;
	}
	return true;
}

/* Length of an unpacked string on the wire; protobuf-c's empty default is not in the arena. */
static size_t string_size(const struct wire_arena *a, const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	if (p < a->block || p >= a->block + sizeof a->block)
		return strlen(s);
	return ((const struct arena_head *)(const void *)p)[-1].size - 1;
}

/* What a field may hold. Every string, bytes and repeated field of the wire has a bound; without one it must be empty. */
struct bound {
	const ProtobufCMessageDescriptor *of;
	const char *field;
	size_t most_bytes; /* of a string or bytes, or of each */
	size_t most;       /* of a repeated field: entries */
	bool is_name;    /* printable UTF-8, because it is written to logs; else without NUL: it may quote file names */
	bool is_needed;  /* not empty */
	uint64_t values; /* of an enumeration, bits: those that belong here; 0: all that this version knows */
};

#define OF(message) &batchd__wire__##message##__descriptor
#define OF_SOURCE(message) &message##__descriptor
#define ANY_VALUE UINT64_MAX /* a later version may have more of them */
#define IMAGE_DTYPES (((2u << BATCHD__WIRE__DTYPE__BOOL8) - 1) | 1u << BATCHD__WIRE__DTYPE__UINT16)

static const struct bound bounds[] = {
	{ OF(hello), "program", WIRE_MAX_PROGRAM, .is_name = true },
	{ OF(open), "transform", .most_bytes = WIRE_MAX_TRANSFORM },
	{ OF(open), "dtype", .values = IMAGE_DTYPES },
	{ OF(open), "job", WIRE_MAX_JOB, .is_name = true },
	{ OF(open), "device_uuid", .most_bytes = WIRE_UUID_BYTES },
	{ OF(open), "field", WIRE_MAX_FIELD_NAME, WIRE_MAX_FIELDS, .is_name = true, .is_needed = true },
	{ OF_SOURCE(sources), "name", WIRE_MAX_DATASET, .is_name = true },
	{ OF_SOURCE(sources), "source", .most = SOURCES_MAX },
	{ OF_SOURCE(source), "part", .most = WIRE_MAX_FDS },
	{ OF_SOURCE(source), "option", .most = WIRE_MAX_OPTIONS },
	{ OF_SOURCE(source), "field", .most = WIRE_MAX_OPTIONS },
	{ OF_SOURCE(source), "within", WIRE_MAX_DATASET, .is_name = true },
	{ OF_SOURCE(source_part), "path", WIRE_MAX_DATASET, .is_name = true },
	{ OF_SOURCE(source_part), "pattern", WIRE_MAX_DATASET, .is_name = true },
	{ OF_SOURCE(source_part), "name", WIRE_MAX_DATASET, .is_name = true },
	{ OF_SOURCE(source_pair), "name", WIRE_MAX_DATASET, .is_name = true },
	{ OF_SOURCE(source_pair), "value", WIRE_MAX_DATASET, .is_name = true },
	{ OF(produce), "name", WIRE_MAX_PRODUCER, .is_name = true, .is_needed = true },
	{ OF(producer_end), "text", .most_bytes = WIRE_MAX_TEXT },
	{ OF(seek), "no_device", WIRE_MAX_REASON, .is_name = true },
	{ OF(join), "no_device", WIRE_MAX_REASON, .is_name = true },
	{ OF(indices), "index", .most = WIRE_MAX_INDICES },
	{ OF(load_open), "transform", .most_bytes = WIRE_MAX_TRANSFORM },
	{ OF(load_open), "dtype", .values = IMAGE_DTYPES },
	{ OF(load_open), "layout", .values = 1u << BATCHD__WIRE__LAYOUT__NCHW | 1u << BATCHD__WIRE__LAYOUT__NHWC },

	{ OF(welcome), "daemon", .most_bytes = WIRE_MAX_PROGRAM },
	{ OF(progress), "phase", .most_bytes = WIRE_MAX_PHASE },
	{ OF(field), "name", WIRE_MAX_FIELD_NAME, .is_name = true, .is_needed = true },
	{ OF(field), "shape", .most = WIRE_MAX_DIMS },
	{ OF(field), "mean", .most = WIRE_MAX_CHANNELS },
	{ OF(field), "std", .most = WIRE_MAX_CHANNELS },
	{ OF(opened), "device_uuid", .most_bytes = WIRE_UUID_BYTES },
	{ OF(opened), "ipc_handle", .most_bytes = WIRE_IPC_HANDLE_BYTES },
	{ OF(opened), "device_reason", .most_bytes = WIRE_MAX_REASON },
	{ OF(opened), "left_out", .most_bytes = WIRE_MAX_REASON },
	{ OF(opened), "field", .most = WIRE_MAX_FIELDS },
	{ OF(classes), "name", WIRE_MAX_CLASS_NAME, .most = WIRE_MAX_CLASSES },
	{ OF(status), "json", .most_bytes = WIRE_MAX_STATUS },
	{ OF(load_opened), "shape", .most = WIRE_MAX_DIMS },
	{ OF(loaded), "code", .values = ANY_VALUE },
	{ OF(loaded), "text", .most_bytes = WIRE_MAX_TEXT },
	{ OF(notice), "kind", .values = ANY_VALUE },
	{ OF(notice), "text", .most_bytes = WIRE_MAX_TEXT },
	{ OF(error), "code", .values = ANY_VALUE },
	{ OF(error), "text", .most_bytes = WIRE_MAX_TEXT },
	{ OF(error), "field", .most_bytes = WIRE_MAX_FIELD },
};

static const struct bound *bound_of(const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f)
{
	static const struct bound none;

	for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
		if (bounds[i].of == d && !strcmp(bounds[i].field, f->name))
			return &bounds[i];
	return &none;
}

static bool text_ok(const struct wire_arena *a, const struct bound *b, const char *s)
{
	size_t n = string_size(a, s);

	if (n > b->most_bytes || (b->is_needed && n == 0))
		return false;
	return b->is_name ? wire_text_ok(s, n, b->most_bytes) : n == strlen(s);
}

static bool enum_ok(const struct bound *b, const ProtobufCEnumDescriptor *known, int value)
{
	if (b->values)
		return b->values == ANY_VALUE || (value >= 0 && value < 64 && b->values >> value & 1);
	return protobuf_c_enum_descriptor_get_value(known, value);
}

static const char *check_body(struct wire_arena *a, const ProtobufCMessage *m);

/* One entry of a repeated field, or the value of another. */
static bool value_ok(struct wire_arena *a, const struct bound *b, const ProtobufCFieldDescriptor *f, const void *value)
{
	if (f->type == PROTOBUF_C_TYPE_STRING)
		return text_ok(a, b, *(char *const *)value);
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return ((const ProtobufCBinaryData *)value)->len <= b->most_bytes;
	if (f->type == PROTOBUF_C_TYPE_ENUM)
		return enum_ok(b, f->descriptor, *(const int *)value);
	const ProtobufCMessage *m = *(const ProtobufCMessage *const *)value;

	return !m || !check_body(a, m); /* a single one may be left out */
}

static const char *refuse_field(struct wire_arena *a, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f,
				const struct bound *b, bool too_many)
{
	int n = snprintf(a->why, sizeof a->why, "%s.%s ", m->descriptor->short_name, f->name);
	char *end = a->why + n;
	size_t room = sizeof a->why - (size_t)n;

	if (too_many)
		snprintf(end, room, "has more than %zu entries", b->most);
	else if (f->type == PROTOBUF_C_TYPE_ENUM)
		snprintf(end, room, "is unknown");
	else
		snprintf(end, room, "is %slonger than %zu bytes%s", b->is_needed ? "empty, " : "", b->most_bytes,
			 b->is_name                          ? " or not printable UTF-8"
			 : f->type == PROTOBUF_C_TYPE_STRING ? " or has a NUL in it"
							     : "");
	return a->why;
}

/* Each field by itself: NULL, or what is wrong. Repeated fields are of numbers, strings or messages. */
static const char *check_body(struct wire_arena *a, const ProtobufCMessage *m)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED, numbers = f->type < PROTOBUF_C_TYPE_ENUM;
		const char *at = (const char *)m + f->offset;
		size_t n = 1;

		if (numbers && !repeated)
			continue;
		const struct bound *b = bound_of(m->descriptor, f);
		if (repeated) {
			n = *(const size_t *)(const void *)((const char *)m + f->quantifier_offset);
			at = *(const char *const *)(const void *)at;
		}
		if (repeated && n > b->most)
			return refuse_field(a, m, f, b, true);
		for (size_t k = 0; !numbers && k < n; k++)
			if (!value_ok(a, b, f, at + k * sizeof(void *)))
				return f->type == PROTOBUF_C_TYPE_MESSAGE ? a->why : refuse_field(a, m, f, b, false);
	}
	return NULL;
}

/* Either a whole device slab that holds all slots, or no field of one. */
static const char *check_opened(const Batchd__Wire__Opened *m)
{
	for (size_t i = 0; i < m->n_field; i++)
		if (m->field[i]->n_std != m->field[i]->n_mean)
			return "Field has a mean and std that do not fit each other";
	if (m->device_uuid.len == 0)
		return m->ipc_handle.len == 0 && m->device_bytes == 0 && m->device_slot_bytes == 0 &&
				       m->device_kind == BATCHD__WIRE__SLAB_KIND__MEMFD
			       ? NULL
			       : "Opened has a device slab without a device";
	if (m->device_kind == BATCHD__WIRE__SLAB_KIND__MEMFD)
		return "Opened has a device slab of an unknown kind";
	if (m->device_uuid.len != WIRE_UUID_BYTES)
		return "Opened has a device without its 16 bytes of UUID";
	if (m->ipc_handle.len != (m->device_kind == BATCHD__WIRE__SLAB_KIND__CUDA_IPC ? WIRE_IPC_HANDLE_BYTES : 0))
		return "Opened has a handle that does not fit the kind of its device slab";
	if (m->device_slot_bytes == 0 || m->device_slot_bytes % WIRE_DEVICE_ALIGN != 0 ||
	    m->device_slot_bytes < m->slot_bytes || m->n_slots > m->device_bytes / m->device_slot_bytes)
		return "Opened has a device slab that its slots do not fit";
	return NULL;
}

static const char *check_load_opened(const Batchd__Wire__LoadOpened *m)
{
	if (m->n_slots < 1 || m->n_slots > WIRE_MAX_LOADS || m->row_bytes < 1 || m->row_bytes > m->slot_bytes ||
	    m->slot_bytes > SIZE_MAX / WIRE_MAX_LOADS)
		return "LoadOpened has slots that its rows do not fit";
	return m->n_shape == 3 ? NULL : "LoadOpened.shape does not have 3 dimensions";
}

static const char *check_open(const Batchd__Wire__Open *m)
{
	if (m->device_uuid.len != 0 && m->device_uuid.len != WIRE_UUID_BYTES)
		return "Open.device_uuid does not have 16 bytes";
	return m->sources ? sources_check(m->sources) : "Open has no data set";
}

/* What fields have to do with each other. */
static const char *check_client(const Batchd__Wire__ClientMessage *m)
{
	return m->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN ? check_open(m->open) : NULL;
}

static const char *check_server(const Batchd__Wire__ServerMessage *m)
{
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED)
		return check_opened(m->opened);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED)
		return check_load_opened(m->load_opened);
	if (m->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH &&
	    (m->batch->n_padding > m->batch->n_rows || m->batch->n_replaced > m->batch->n_rows))
		return "Batch counts more padding or replaced rows than rows";
	return NULL;
}

static const char no_body[] = "the message has no body that this version knows";

/* The part of unpacking that both unpackers share, before they look at the body. */
static void *wire_unpack(struct wire_arena *a, const ProtobufCMessageDescriptor *type, const void *bytes,
			 size_t n_bytes, const char **why)
{
	void *m;

	arena_reset(a);
	if (n_bytes > WIRE_MAX_BYTES) {
		*why = "the packet is larger than 64 KiB";
		return NULL;
	}
	m = protobuf_c_message_unpack(type, &a->allocator, n_bytes, bytes);
	if (!m)
		*why = a->exhausted ? "the message takes more than 512 KiB when unpacked"
				    : "the packet is not a protobuf message";
	return m;
}

int wire_unpack_client(struct wire_arena *a, const void *bytes, size_t n_bytes, const Batchd__Wire__ClientMessage **msg,
		       const char **why)
{
	const char *wrong = NULL;
	Batchd__Wire__ClientMessage *m =
		wire_unpack(a, &batchd__wire__client_message__descriptor, bytes, n_bytes, &wrong);

	if (m)
		wrong = m->hello ? check_body(a, &m->hello->base) : no_body;
	if (m && !wrong)
		wrong = check_client(m);
	if (why)
		*why = wrong;
	*msg = wrong ? NULL : m;
	return wrong ? -EPROTO : 0;
}

int wire_unpack_server(struct wire_arena *a, const void *bytes, size_t n_bytes, const Batchd__Wire__ServerMessage **msg,
		       const char **why)
{
	const char *wrong = NULL;
	Batchd__Wire__ServerMessage *m =
		wire_unpack(a, &batchd__wire__server_message__descriptor, bytes, n_bytes, &wrong);

	if (m)
		wrong = m->welcome ? check_body(a, &m->welcome->base) : no_body;
	if (m && !wrong)
		wrong = check_server(m);
	if (why)
		*why = wrong;
	*msg = wrong ? NULL : m;
	return wrong ? -EPROTO : 0;
}

bool wire_client_fds_ok(const Batchd__Wire__ClientMessage *msg, unsigned n_fds)
{
	if (msg->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_LOAD_OPEN)
		return n_fds == 1;
	if (msg->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_FILLED)
		return n_fds <= (msg->filled->n_rows ? 1 : 0);
	return n_fds == 0 || (msg->body_case == BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN && n_fds <= WIRE_MAX_FDS);
}

unsigned wire_opened_fds(const Batchd__Wire__Opened *m)
{
	return 2 + (m->device_kind == BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD);
}

bool wire_server_fds_ok(const Batchd__Wire__ServerMessage *msg, unsigned n_fds)
{
	if (msg->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING)
		return n_fds == (msg->producing->slab ? 1 : 0);
	if (msg->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_TRACED ||
	    msg->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_LARGE ||
	    msg->body_case == BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED)
		return n_fds == 1;
	if (msg->body_case != BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED)
		return n_fds == 0;
	return n_fds == wire_opened_fds(msg->opened);
}

/* ---- names and addresses ---- */

const char *wire_code_name(Batchd__Wire__ErrorCode code)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&batchd__wire__error_code__descriptor, code);

	return v ? v->name : "UNKNOWN";
}

/* A message is called as its type is. */
static const char *name_of(const ProtobufCMessageDescriptor *message, unsigned body)
{
	const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(message, body);

	return f ? ((const ProtobufCMessageDescriptor *)f->descriptor)->short_name : "nothing";
}

const char *wire_client_name(const Batchd__Wire__ClientMessage *msg)
{
	return name_of(&batchd__wire__client_message__descriptor, msg->body_case);
}

const char *wire_server_name(const Batchd__Wire__ServerMessage *msg)
{
	return name_of(&batchd__wire__server_message__descriptor, msg->body_case);
}

int wire_address(const char *path, struct sockaddr_un *address, socklen_t *n_bytes)
{
	size_t n = strlen(path);

	if (n == 0)
		return -EINVAL;
	if (n >= sizeof address->sun_path)
		return -ENAMETOOLONG;
	memset(address, 0, sizeof *address);
	address->sun_family = AF_UNIX;
	memcpy(address->sun_path, path, n + 1);
	*n_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1);
	return 0;
}
