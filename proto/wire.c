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

static bool name_ok(const struct wire_arena *a, const char *s, size_t max)
{
	return wire_text_ok(s, string_size(a, s), max);
}

/* At most max bytes, and without a NUL inside: for texts of the daemon, which may quote file names of any bytes. */
static bool bytes_ok(const struct wire_arena *a, const char *s, size_t max)
{
	size_t n = string_size(a, s);

	return n <= max && n == strlen(s);
}

static const char *check_open(const struct wire_arena *a, const Batchd__Wire__Open *m)
{
	if (!name_ok(a, m->dataset, WIRE_MAX_DATASET))
		return "Open.dataset is too long or not printable UTF-8";
	if (string_size(a, m->transform) > WIRE_MAX_TRANSFORM || strlen(m->transform) != string_size(a, m->transform))
		return "Open.transform is too long or has a NUL in it";
	if (!name_ok(a, m->job, WIRE_MAX_JOB))
		return "Open.job is longer than 128 bytes or not printable UTF-8";
	if (m->dtype < 0 || (m->dtype > BATCHD__WIRE__DTYPE__BOOL8 && m->dtype != BATCHD__WIRE__DTYPE__UINT16))
		return "Open.dtype is unknown";
	if (m->layout < 0 || m->layout > BATCHD__WIRE__LAYOUT__AS_STORED)
		return "Open.layout is unknown";
	if (m->mode < 0 || m->mode > BATCHD__WIRE__MODE__SHARE)
		return "Open.mode is unknown";
	if (m->policy < 0 || m->policy > BATCHD__WIRE__POLICY__POLICY_DETACH)
		return "Open.policy is unknown";
	if (m->n_field > WIRE_MAX_FIELDS)
		return "Open.field has more than 64 names";
	for (size_t i = 0; i < m->n_field; i++)
		if (!*m->field[i] || !name_ok(a, m->field[i], WIRE_MAX_FIELD_NAME))
			return "Open.field has a name that is empty, longer than 63 bytes or not printable UTF-8";
	if (m->device_uuid.len != 0 && m->device_uuid.len != WIRE_UUID_BYTES)
		return "Open.device_uuid does not have 16 bytes";
	return NULL;
}

static const char *check_load_open(const struct wire_arena *a, const Batchd__Wire__LoadOpen *m)
{
	if (string_size(a, m->transform) > WIRE_MAX_TRANSFORM || strlen(m->transform) != string_size(a, m->transform))
		return "LoadOpen.transform is too long or has a NUL in it";
	if (m->dtype < 0 || (m->dtype > BATCHD__WIRE__DTYPE__BOOL8 && m->dtype != BATCHD__WIRE__DTYPE__UINT16))
		return "LoadOpen.dtype is unknown";
	if (m->layout < 0 || m->layout > BATCHD__WIRE__LAYOUT__NHWC)
		return "LoadOpen.layout is neither NCHW nor NHWC";
	return NULL;
}

static const char *check_client(const struct wire_arena *a, const Batchd__Wire__ClientMessage *m)
{
	switch (m->body_case) {
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_HELLO:
		return name_ok(a, m->hello->program, WIRE_MAX_PROGRAM)
			       ? NULL
			       : "Hello.program is longer than 64 bytes or not printable UTF-8";
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN:
		return check_open(a, m->open);
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_INDICES:
		return m->indices->n_index <= WIRE_MAX_INDICES ? NULL : "Indices has more than 4096 of them";
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_SEEK:
		return name_ok(a, m->seek->no_device, WIRE_MAX_REASON)
			       ? NULL
			       : "Seek.no_device is longer than 512 bytes or not printable UTF-8";
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_JOIN:
		if (!name_ok(a, m->join->no_device, WIRE_MAX_REASON))
			return "Join.no_device is longer than 512 bytes or not printable UTF-8";
		return m->join->start >= 0 && m->join->start <= BATCHD__WIRE__START__AT_START ? NULL
											      : "Join.start is unknown";
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCE:
		return *m->produce->name && name_ok(a, m->produce->name, WIRE_MAX_PRODUCER)
			       ? NULL
			       : "Produce.name is empty, longer than 64 bytes or not printable UTF-8";
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCER_END:
		return bytes_ok(a, m->producer_end->text, WIRE_MAX_TEXT)
			       ? NULL
			       : "ProducerEnd.text is longer than 4096 bytes or has a NUL in it";
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_LOAD_OPEN:
		return check_load_open(a, m->load_open);
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_LOAD:
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_FILLED:
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_RELEASE:
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLASSES:
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_STATUS:
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_CLOSE:
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_WAKE:
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY_TRACE:
		return NULL;
	case BATCHD__WIRE__CLIENT_MESSAGE__BODY__NOT_SET:
	default:
		return "the message has no body that this version knows";
	}
}

/* Either a whole device slab that holds all slots, or no field of one. */
static const char *check_opened_device(const struct wire_arena *a, const Batchd__Wire__Opened *m)
{
	if (!bytes_ok(a, m->left_out, WIRE_MAX_REASON))
		return "Opened.left_out is longer than 512 bytes or has a NUL in it";
	if (!bytes_ok(a, m->device_reason, WIRE_MAX_REASON))
		return "Opened.device_reason is longer than 512 bytes or has a NUL in it";
	if (m->device_uuid.len == 0)
		return m->ipc_handle.len == 0 && m->device_bytes == 0 && m->device_slot_bytes == 0 &&
				       m->device_kind == BATCHD__WIRE__SLAB_KIND__MEMFD
			       ? NULL
			       : "Opened has a device slab without a device";
	if (m->device_kind != BATCHD__WIRE__SLAB_KIND__CUDA_IPC &&
	    m->device_kind != BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD)
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

static bool is_dtype(Batchd__Wire__Dtype t)
{
	return protobuf_c_enum_descriptor_get_value(&batchd__wire__dtype__descriptor, t) != NULL;
}

static const char *check_field(const struct wire_arena *a, const Batchd__Wire__Field *m)
{
	if (!*m->name || !name_ok(a, m->name, WIRE_MAX_FIELD_NAME))
		return "Field.name is empty, longer than 63 bytes or not printable UTF-8";
	if (m->kind < 0 || m->kind > BATCHD__WIRE__FIELD_KIND__RAGGED)
		return "Field.kind is unknown";
	if (!is_dtype(m->dtype))
		return "Field.dtype is unknown";
	if (m->n_mean > WIRE_MAX_CHANNELS || m->n_std != m->n_mean)
		return "Field has a mean and std that do not fit each other";
	return m->n_shape > WIRE_MAX_DIMS ? "Field.shape has more than 8 dimensions" : NULL;
}

static const char *check_opened(const struct wire_arena *a, const Batchd__Wire__Opened *m)
{
	if (m->n_field > WIRE_MAX_FIELDS)
		return "Opened has more than 64 fields";
	for (size_t i = 0; i < m->n_field; i++) {
		const char *wrong = check_field(a, m->field[i]);

		if (wrong)
			return wrong;
	}
	if (m->layout < 0 || m->layout > BATCHD__WIRE__LAYOUT__AS_STORED)
		return "Opened has an unknown layout";
	if (m->policy < 0 || m->policy > BATCHD__WIRE__POLICY__POLICY_DETACH)
		return "Opened has an unknown policy";
	return check_opened_device(a, m);
}

static const char *check_classes(const struct wire_arena *a, const Batchd__Wire__Classes *m)
{
	if (m->n_name > WIRE_MAX_CLASSES)
		return "Classes has more than 4096 names";
	for (size_t i = 0; i < m->n_name; i++)
		if (!bytes_ok(a, m->name[i], WIRE_MAX_CLASS_NAME))
			return "Classes has a name longer than 255 bytes or with a NUL in it";
	return NULL;
}

static const char *check_load_opened(const Batchd__Wire__LoadOpened *m)
{
	if (m->n_slots < 1 || m->n_slots > WIRE_MAX_LOADS || m->row_bytes < 1 || m->row_bytes > m->slot_bytes ||
	    m->slot_bytes > SIZE_MAX / WIRE_MAX_LOADS)
		return "LoadOpened has slots that its rows do not fit";
	return m->n_shape == 3 ? NULL : "LoadOpened.shape does not have 3 dimensions";
}

static const char *check_server(const struct wire_arena *a, const Batchd__Wire__ServerMessage *m)
{
	switch (m->body_case) {
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_WELCOME:
		return bytes_ok(a, m->welcome->daemon, WIRE_MAX_PROGRAM) ? NULL
									 : "Welcome.daemon is longer than 64 bytes";
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS:
		return bytes_ok(a, m->progress->phase, WIRE_MAX_PHASE) ? NULL
								       : "Progress.phase is longer than 64 bytes";
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED:
		return check_opened(a, m->opened);
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH:
		return m->batch->n_padding <= m->batch->n_rows && m->batch->n_replaced <= m->batch->n_rows
			       ? NULL
			       : "Batch counts more padding or replaced rows than rows";
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_CLASSES:
		return check_classes(a, m->classes);
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS:
		return m->status->json.len <= WIRE_MAX_STATUS ? NULL : "Status has more than 61440 bytes";
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_NOTICE:
		return bytes_ok(a, m->notice->text, WIRE_MAX_TEXT) ? NULL : "Notice has a text that is too long";
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_JOINED:
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_TRACED:
		return NULL;
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED:
		return check_load_opened(m->load_opened);
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_LOADED:
		return bytes_ok(a, m->loaded->text, WIRE_MAX_TEXT) ? NULL : "Loaded has a text that is too long";
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR:
		return bytes_ok(a, m->error->text, WIRE_MAX_TEXT) && bytes_ok(a, m->error->field, WIRE_MAX_FIELD)
			       ? NULL
			       : "Error has a text or field that is too long";
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE:
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING:
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_FILL:
	case BATCHD__WIRE__SERVER_MESSAGE__BODY_LARGE:
		return NULL;
	case BATCHD__WIRE__SERVER_MESSAGE__BODY__NOT_SET:
	default:
		return "the message has no body that this version knows";
	}
}

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
		wrong = check_client(a, m);
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
		wrong = check_server(a, m);
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

/* Numbers of bodies have gaps. */
static const char *name_of(const char *const *names, size_t n, unsigned body)
{
	return body < n && names[body] ? names[body] : "unknown";
}

const char *wire_client_name(const Batchd__Wire__ClientMessage *msg)
{
	static const char *const names[] = { "nothing",
					     "Hello",
					     "Open",
					     "Seek",
					     "Indices",
					     "Release",
					     "ClassesRequest",
					     "StatusRequest",
					     "Close",
					     [BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCE] = "Produce",
					     [BATCHD__WIRE__CLIENT_MESSAGE__BODY_FILLED] = "Filled",
					     [BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCER_END] = "ProducerEnd",
					     [BATCHD__WIRE__CLIENT_MESSAGE__BODY_WAKE] = "Wake",
					     [BATCHD__WIRE__CLIENT_MESSAGE__BODY_JOIN] = "Join",
					     [BATCHD__WIRE__CLIENT_MESSAGE__BODY_TRACE] = "Trace",
					     [BATCHD__WIRE__CLIENT_MESSAGE__BODY_LOAD_OPEN] = "LoadOpen",
					     [BATCHD__WIRE__CLIENT_MESSAGE__BODY_LOAD] = "Load" };

	return name_of(names, sizeof names / sizeof *names, msg->body_case);
}

const char *wire_server_name(const Batchd__Wire__ServerMessage *msg)
{
	static const char *const names[] = { "nothing",
					     "Welcome",
					     "Progress",
					     "Opened",
					     "Batch",
					     "Classes",
					     "Status",
					     "Error",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_WAKE] = "Wake",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_NOTICE] = "Notice",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING] = "Producing",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_FILL] = "Fill",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_JOINED] = "Joined",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_TRACED] = "Traced",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_LOAD_OPENED] = "LoadOpened",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_LOADED] = "Loaded",
					     [BATCHD__WIRE__SERVER_MESSAGE__BODY_LARGE] = "Large" };

	return name_of(names, sizeof names / sizeof *names, msg->body_case);
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
