/* One packet of the wire: sent messages arrive, limits hold on both sides of each, descriptors never leak, invalid
 * input is detected. */
#include "wire.h"
#include "support/sources-text.h"
#include "support/suite.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct fixture {
	int ends[2];
	struct wire_arena *arena;
	unsigned char bytes[WIRE_MAX_BYTES];
	unsigned n_fds_before;
};
static struct fixture f;

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void setup(void)
{
	f.arena = malloc(sizeof *f.arena);
	wire_arena_init(f.arena);
	f.n_fds_before = count_fds();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, f.ends), 0);
}

static void teardown(void)
{
	close(f.ends[0]);
	close(f.ends[1]);
	ck_assert_uint_eq(count_fds(), f.n_fds_before);
	free(f.arena);
}

/* ---- helpers ---- */

static int send_client(Batchd__Wire__ClientMessage *m, const int *fds, unsigned n_fds)
{
	return wire_send(f.ends[0], &m->base, fds, n_fds, MSG_DONTWAIT);
}

static int receive(int *fds, unsigned *n_fds, size_t *n_bytes)
{
	*n_bytes = sizeof f.bytes;
	return wire_recv(f.ends[1], f.bytes, n_bytes, fds, n_fds, MSG_DONTWAIT);
}

/* Packs m and unpacks it as the daemon would. */
static int roundtrip(Batchd__Wire__ClientMessage *m, const Batchd__Wire__ClientMessage **out, const char **why)
{
	size_t n = protobuf_c_message_pack(&m->base, f.bytes);

	return wire_unpack_client(f.arena, f.bytes, n, out, why);
}

static int roundtrip_server(Batchd__Wire__ServerMessage *m, const char **why)
{
	const Batchd__Wire__ServerMessage *out;
	size_t n = protobuf_c_message_pack(&m->base, f.bytes);

	return wire_unpack_server(f.arena, f.bytes, n, &out, why);
}

static Batchd__Wire__ClientMessage hello_of(Batchd__Wire__Hello *h, char *program)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;

	*h = (Batchd__Wire__Hello)BATCHD__WIRE__HELLO__INIT;
	h->version = WIRE_VERSION;
	h->program = program;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_HELLO;
	m.hello = h;
	return m;
}

static Batchd__Wire__ClientMessage open_of(Batchd__Wire__Open *o)
{
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;

	*o = (Batchd__Wire__Open)BATCHD__WIRE__OPEN__INIT;
	o->sources = sources_of("train");
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN;
	m.open = o;
	return m;
}

/* ---- cases ---- */

START_TEST(test_message_and_its_fds_arrive_close_on_exec)
{
	/* A packet arrives whole, with its descriptors, which are close-on-exec. */
	Batchd__Wire__Open o;
	Batchd__Wire__ClientMessage m = open_of(&o);
	const Batchd__Wire__ClientMessage *got;
	int mine[2] = { open("/dev/null", O_RDONLY | O_CLOEXEC), open("/dev/zero", O_RDONLY | O_CLOEXEC) },
	    fds[WIRE_MAX_FDS];
	unsigned n_fds = WIRE_MAX_FDS;
	size_t n_bytes;

	o.sources = sources_of("npy:/a,/b");
	o.rank = -1;
	ck_assert_int_eq(send_client(&m, mine, 2), 0);
	ck_assert_int_eq(receive(fds, &n_fds, &n_bytes), 0);
	ck_assert_uint_eq(n_fds, 2);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(wire_unpack_client(f.arena, f.bytes, n_bytes, &got, NULL), 0);
	ck_assert_int_eq(got->body_case, BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN);
	ck_assert(sources_are_equal(got->open->sources, o.sources));
	ck_assert_int_eq(got->open->rank, -1);
	ck_assert(wire_client_fds_ok(got, n_fds));
	wire_close_fds(fds, n_fds);
	wire_close_fds(mine, 2);
}
END_TEST

START_TEST(test_more_fds_than_asked_for_are_closed_and_refused)
{
	/* Whatever the peer attaches, no descriptor is left open (teardown counts them). */
	Batchd__Wire__Hello h;
	Batchd__Wire__ClientMessage m = hello_of(&h, (char *)"x");
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), many[WIRE_MAX_FDS + 1], fds[WIRE_MAX_FDS];
	unsigned n_fds;
	size_t n_bytes;

	for (unsigned i = 0; i <= WIRE_MAX_FDS; i++)
		many[i] = null;
	for (unsigned room = 0; room < WIRE_MAX_FDS; room++) {
		n_fds = room;
		ck_assert_int_eq(send_client(&m, many, WIRE_MAX_FDS), 0);
		ck_assert_int_eq(receive(fds, &n_fds, &n_bytes), -EPROTO);
		ck_assert_uint_eq(n_fds, 0);
		ck_assert_uint_eq(n_bytes, 0);
	}
	n_fds = WIRE_MAX_FDS;
	ck_assert_int_eq(send_client(&m, many, WIRE_MAX_FDS), 0);
	ck_assert_int_eq(receive(fds, &n_fds, &n_bytes), 0);
	wire_close_fds(fds, n_fds);
	ck_assert_int_eq(wire_send(f.ends[0], &m.base, many, WIRE_MAX_FDS + 1, 0), -EINVAL);
	close(null);
}
END_TEST

START_TEST(test_fd_flood_is_closed_by_the_kernel_or_by_us)
{
	/* A hostile peer sends 200 descriptors in one packet, past the limit of our own sender. */
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), flood[200], fds[WIRE_MAX_FDS];
	char control[CMSG_SPACE(sizeof flood)] __attribute__((aligned(8))) = { 0 }, byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	unsigned n_fds = WIRE_MAX_FDS;
	size_t n_bytes;

	for (unsigned i = 0; i < 200; i++)
		flood[i] = null;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof flood);
	memcpy(CMSG_DATA(c), flood, sizeof flood);
	ck_assert_int_eq(sendmsg(f.ends[0], &msg, 0), 1);
	ck_assert_int_eq(receive(fds, &n_fds, &n_bytes), -EPROTO);
	close(null);
}
END_TEST

START_TEST(test_fd_table_full_refuses_the_packet_and_keeps_the_connection)
{
	/* At RLIMIT_NOFILE the kernel drops descriptors silently; that must not look like a good packet. */
	Batchd__Wire__Open o;
	Batchd__Wire__ClientMessage m = open_of(&o);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), one[1] = { null }, fds[WIRE_MAX_FDS];
	unsigned n_fds = WIRE_MAX_FDS;
	struct rlimit saved, low;
	size_t n_bytes;

	ck_assert_int_eq(send_client(&m, one, 1), 0);
	getrlimit(RLIMIT_NOFILE, &saved);
	low = (struct rlimit){ (rlim_t)null + 1, saved.rlim_max };
	setrlimit(RLIMIT_NOFILE, &low);
	ck_assert_int_eq(receive(fds, &n_fds, &n_bytes), -EPROTO);
	setrlimit(RLIMIT_NOFILE, &saved);
	n_fds = WIRE_MAX_FDS;
	ck_assert_int_eq(send_client(&m, one, 1), 0);
	ck_assert_int_eq(receive(fds, &n_fds, &n_bytes), 0);
	wire_close_fds(fds, n_fds);
	close(null);
}
END_TEST

START_TEST(test_packet_of_the_largest_size_passes_and_one_more_does_not)
{
	/* 65536 bytes pass, 65537 are refused by our sender and, from a foreign sender, by the receiver. */
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	Batchd__Wire__Status s = BATCHD__WIRE__STATUS__INIT;
	unsigned char *json = calloc(1, WIRE_MAX_BYTES + 1);
	unsigned n_fds = 0;
	size_t n_bytes = 0;

	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_STATUS;
	m.status = &s;
	s.json = (ProtobufCBinaryData){ WIRE_MAX_BYTES - 8, json };
	ck_assert_uint_eq(protobuf_c_message_get_packed_size(&m.base), WIRE_MAX_BYTES);
	ck_assert_int_eq(wire_send(f.ends[0], &m.base, NULL, 0, 0), 0);
	ck_assert_int_eq(receive(NULL, &n_fds, &n_bytes), 0);
	ck_assert_uint_eq(n_bytes, WIRE_MAX_BYTES);
	s.json.len++;
	ck_assert_int_eq(wire_send(f.ends[0], &m.base, NULL, 0, 0), -EMSGSIZE);
	ck_assert_int_eq(send(f.ends[0], json, WIRE_MAX_BYTES + 1, 0), WIRE_MAX_BYTES + 1);
	ck_assert_int_eq(receive(NULL, &n_fds, &n_bytes), -EMSGSIZE);
	free(json);
}
END_TEST

START_TEST(test_end_of_connection_full_socket_and_empty_socket_differ)
{
	/* The outcomes that a loop has to distinguish. */
	Batchd__Wire__Hello h;
	Batchd__Wire__ClientMessage m = hello_of(&h, (char *)"x");
	unsigned n_fds = 0, n_sent = 0;
	size_t n_bytes;
	int r;

	ck_assert_int_eq(receive(NULL, &n_fds, &n_bytes), -EAGAIN);
	while ((r = send_client(&m, NULL, 0)) == 0)
		n_sent++;
	ck_assert_int_eq(r, -EAGAIN);
	while ((r = receive(NULL, &n_fds, &n_bytes)) == 0)
		n_sent--;
	ck_assert_int_eq(r, -EAGAIN);
	ck_assert_uint_eq(n_sent, 0);
	shutdown(f.ends[0], SHUT_WR);
	ck_assert_int_eq(receive(NULL, &n_fds, &n_bytes), -ECONNRESET);
	close(f.ends[1]);
	ck_assert_int_eq(send_client(&m, NULL, 0), -EPIPE);
	f.ends[1] = dup(f.ends[0]);
}
END_TEST

START_TEST(test_last_words_of_a_peer_that_left_in_a_hurry_are_heard)
{
	/* A daemon that gives a reason and closes without reading our last message: the kernel reports a reset first,
	 * and the reason must not be lost. */
	Batchd__Wire__Hello h;
	Batchd__Wire__ClientMessage m = hello_of(&h, (char *)"x");
	Batchd__Wire__ServerMessage answer = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	Batchd__Wire__Error error = BATCHD__WIRE__ERROR__INIT;
	const Batchd__Wire__ServerMessage *got;
	size_t n_bytes = sizeof f.bytes;
	unsigned n_fds = 0;

	answer.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_ERROR;
	answer.error = &error;
	error.code = BATCHD__WIRE__ERROR_CODE__SHUTDOWN;
	ck_assert_int_eq(send_client(&m, NULL, 0), 0);
	ck_assert_int_eq(wire_send(f.ends[1], &answer.base, NULL, 0, 0), 0);
	close(f.ends[1]);
	ck_assert_int_eq(wire_recv(f.ends[0], f.bytes, &n_bytes, NULL, &n_fds, 0), 0);
	ck_assert_int_eq(wire_unpack_server(f.arena, f.bytes, n_bytes, &got, NULL), 0);
	ck_assert_int_eq(got->error->code, BATCHD__WIRE__ERROR_CODE__SHUTDOWN);
	n_bytes = sizeof f.bytes;
	ck_assert_int_eq(wire_recv(f.ends[0], f.bytes, &n_bytes, NULL, &n_fds, 0), -ECONNRESET);
	f.ends[1] = dup(f.ends[0]);
}
END_TEST

static void check_program(const char *bytes, size_t n, bool ok)
{
	unsigned char packet[256] = { 0x0a, 0, 0x12, 0 }; /* ClientMessage.hello { program } */
	const Batchd__Wire__ClientMessage *got;
	const char *why = NULL;

	packet[1] = (unsigned char)(n + 2);
	packet[3] = (unsigned char)n;
	memcpy(packet + 4, bytes, n);
	ck_assert_int_eq(wire_unpack_client(f.arena, packet, n + 4, &got, &why), ok ? 0 : -EPROTO);
	ck_assert(ok ? got != NULL && why == NULL : got == NULL && why != NULL);
}

START_TEST(test_names_must_be_printable_utf8_within_their_limit)
{
	/* Names that appear in logs cannot forge a line, and a NUL cannot hide the rest of a name. */
	char name[80];

	memset(name, 'a', sizeof name);
	check_program(name, WIRE_MAX_PROGRAM, true);
	check_program(name, WIRE_MAX_PROGRAM + 1, false);
	check_program("", 0, true);
	check_program("train\xc3\xa9.py", 10, true);
	check_program("\xf0\x9f\x98\x80", 4, true);
	check_program("a\nb", 3, false);
	check_program("a\x7f", 2, false);
	check_program("a\0b", 3, false);
	check_program("a\0", 2, false);
	check_program("\xc3", 1, false);     /* cut */
	check_program("\xc0\xaf", 2, false); /* overlong */
	check_program("\xe0\x80\xaf", 3, false);
	check_program("\xed\xa0\x80", 3, false);     /* surrogate */
	check_program("\xf4\x90\x80\x80", 4, false); /* above U+10FFFF */
	check_program("\xff", 1, false);
}
END_TEST

START_TEST(test_open_with_long_names_or_unknown_enumerations_is_refused)
{
	/* protobuf-c accepts both. */
	char *text = malloc(WIRE_MAX_TRANSFORM + 2);
	const Batchd__Wire__ClientMessage *got;
	Sources named = SOURCES__INIT;
	Batchd__Wire__Open o;
	Batchd__Wire__ClientMessage m = open_of(&o);
	const char *why;

	memset(text, 'j', WIRE_MAX_TRANSFORM + 1);
	text[WIRE_MAX_TRANSFORM + 1] = '\0';
	o.transform = text + 1;
	ck_assert_int_eq(roundtrip(&m, &got, &why), 0);
	o.transform = text;
	ck_assert_int_eq(roundtrip(&m, &got, &why), -EPROTO);
	ck_assert_ptr_nonnull(strstr(why, "transform"));
	o.transform = (char *)"";
	o.job = text + WIRE_MAX_TRANSFORM + 1 - WIRE_MAX_JOB;
	ck_assert_int_eq(roundtrip(&m, &got, &why), 0);
	o.job--;
	ck_assert_int_eq(roundtrip(&m, &got, &why), -EPROTO);
	o.job = (char *)"";
	named.name = text + WIRE_MAX_TRANSFORM + 1 - WIRE_MAX_DATASET;
	o.sources = &named;
	ck_assert_int_eq(roundtrip(&m, &got, &why), 0);
	named.name--;
	ck_assert_int_eq(roundtrip(&m, &got, &why), -EPROTO);
	o.sources = NULL;
	ck_assert_int_eq(roundtrip(&m, &got, &why), -EPROTO);
	ck_assert_str_eq(why, "Open has no data set");
	m = open_of(&o);
	o.dtype = (Batchd__Wire__Dtype)8;
	ck_assert_int_eq(roundtrip(&m, &got, &why), -EPROTO);
	m = open_of(&o);
	o.layout = (Batchd__Wire__Layout)-1;
	ck_assert_int_eq(roundtrip(&m, &got, &why), -EPROTO);
	m = open_of(&o);
	o.mode = (Batchd__Wire__Mode)2;
	ck_assert_int_eq(roundtrip(&m, &got, &why), -EPROTO);
	free(text);
}
END_TEST

START_TEST(test_indices_up_to_the_limit_arrive_in_order)
{
	/* 4096 of the largest numbers fit a packet; 4097 are one too many. */
	uint64_t *index = malloc((WIRE_MAX_INDICES + 1) * sizeof *index);
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Indices i = BATCHD__WIRE__INDICES__INIT;
	const Batchd__Wire__ClientMessage *got;
	const char *why;

	for (unsigned k = 0; k <= WIRE_MAX_INDICES; k++)
		index[k] = UINT64_MAX - k;
	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_INDICES;
	m.indices = &i;
	i.index = index;
	i.n_index = WIRE_MAX_INDICES;
	ck_assert_int_eq(roundtrip(&m, &got, &why), 0);
	ck_assert_uint_eq(got->indices->n_index, WIRE_MAX_INDICES);
	ck_assert_mem_eq(got->indices->index, index, WIRE_MAX_INDICES * sizeof *index);
	i.n_index++;
	ck_assert_int_eq(roundtrip(&m, &got, &why), -EPROTO);
	free(index);
}
END_TEST

START_TEST(test_message_without_a_known_body_is_refused)
{
	/* Empty, garbage, a field of a future version, the other side's message. */
	static const unsigned char future[] = { 0xc2, 0x3e, 0x00 }, cut[] = { 0x0a, 0x10, 0x08 };
	const Batchd__Wire__ClientMessage *got;
	const char *why;

	ck_assert_int_eq(wire_unpack_client(f.arena, "", 0, &got, &why), -EPROTO);
	ck_assert_int_eq(wire_unpack_client(f.arena, future, sizeof future, &got, &why), -EPROTO);
	ck_assert_ptr_nonnull(strstr(why, "body"));
	ck_assert_int_eq(wire_unpack_client(f.arena, cut, sizeof cut, &got, &why), -EPROTO);
	ck_assert_ptr_nonnull(strstr(why, "protobuf"));
	memset(f.bytes, 0xff, sizeof f.bytes);
	ck_assert_int_eq(wire_unpack_client(f.arena, f.bytes, sizeof f.bytes, &got, &why), -EPROTO);
}
END_TEST

START_TEST(test_packet_that_grows_when_unpacked_is_refused_within_the_arena)
{
	/* 64 KiB of empty class names would become megabytes; unpacking stops at 512 KiB and the arena is reusable. */
	Batchd__Wire__Hello h;
	Batchd__Wire__ClientMessage m = hello_of(&h, (char *)"x");
	const Batchd__Wire__ServerMessage *got;
	const Batchd__Wire__ClientMessage *fine;
	const char *why;
	size_t n = 65532;

	f.bytes[0] = 0x2a; /* ServerMessage.classes */
	f.bytes[1] = 0xfc, f.bytes[2] = 0xff, f.bytes[3] = 0x03;
	for (size_t i = 4; i < 4 + n; i += 2) {
		f.bytes[i] = 0x12; /* name: "" */
		f.bytes[i + 1] = 0;
	}
	ck_assert_int_eq(wire_unpack_server(f.arena, f.bytes, 4 + n, &got, &why), -EPROTO);
	ck_assert_ptr_nonnull(strstr(why, "512 KiB"));
	ck_assert_uint_le(f.arena->used, WIRE_ARENA_BYTES);
	ck_assert_int_eq(roundtrip(&m, &fine, &why), 0);
}
END_TEST

START_TEST(test_body_sent_twice_is_one_body)
{
	/* protobuf merges repeated fields: the last value wins, and only our own memory is freed. */
	unsigned char twice[] = { 0x0a, 0x03, 0x12, 0x01, 'a', 0x0a, 0x03, 0x12, 0x01, 'b' };
	unsigned char two_kinds[] = { 0x0a, 0x03, 0x12, 0x01, 'a', 0x3a, 0x00 };
	const Batchd__Wire__ClientMessage *got;

	ck_assert_int_eq(wire_unpack_client(f.arena, twice, sizeof twice, &got, NULL), 0);
	ck_assert_str_eq(got->hello->program, "b");
	ck_assert_int_eq(wire_unpack_client(f.arena, two_kinds, sizeof two_kinds, &got, NULL), 0);
	ck_assert_int_eq(got->body_case, BATCHD__WIRE__CLIENT_MESSAGE__BODY_STATUS);
}
END_TEST

START_TEST(test_wanted_fields_within_and_beyond_their_limits)
{
	/* A hostile client names as many as it likes, as long as it likes: 64 names of 63 bytes, and no more. */
	static char name[WIRE_MAX_FIELD_NAME + 2];
	char *names[WIRE_MAX_FIELDS + 1];
	const char *why;
	Batchd__Wire__Open o;
	Batchd__Wire__ClientMessage m = open_of(&o);
	const Batchd__Wire__ClientMessage *out;

	o.job = (char *)"j";
	memset(name, 'x', WIRE_MAX_FIELD_NAME);
	for (unsigned i = 0; i <= WIRE_MAX_FIELDS; i++)
		names[i] = name;
	o.field = names;
	o.n_field = WIRE_MAX_FIELDS;
	ck_assert_int_eq(roundtrip(&m, &out, &why), 0);
	o.n_field++;
	ck_assert_int_eq(roundtrip(&m, &out, &why), -EPROTO);
	o.n_field = 2;
	name[WIRE_MAX_FIELD_NAME] = 'x';
	ck_assert_int_eq(roundtrip(&m, &out, &why), -EPROTO);
	ck_assert_ptr_nonnull(strstr(why, "Open.field"));
	name[0] = '\0';
	ck_assert_int_eq(roundtrip(&m, &out, &why), -EPROTO);
	name[0] = '\n';
	name[1] = '\0';
	ck_assert_int_eq(roundtrip(&m, &out, &why), -EPROTO);
}
END_TEST

START_TEST(test_server_messages_within_and_beyond_their_limits)
{
	/* The client does not trust the daemon's numbers either. */
	uint32_t shape[WIRE_MAX_DIMS + 1] = { 0 };
	Batchd__Wire__Field field = BATCHD__WIRE__FIELD__INIT, *fields[WIRE_MAX_FIELDS + 1];
	char name[WIRE_MAX_FIELD_NAME + 2] = "";
	float mean[4] = { 0 };
	char phase[WIRE_MAX_PHASE + 2];
	const char *why;
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	Batchd__Wire__Opened o = BATCHD__WIRE__OPENED__INIT;
	Batchd__Wire__Batch b = BATCHD__WIRE__BATCH__INIT;
	Batchd__Wire__Progress p = BATCHD__WIRE__PROGRESS__INIT;

	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED;
	m.opened = &o;
	for (unsigned i = 0; i <= WIRE_MAX_FIELDS; i++) {
		fields[i] = &field;
	}
	field.name = name;
	memset(name, 'x', WIRE_MAX_FIELD_NAME);
	field.shape = shape;
	field.n_shape = WIRE_MAX_DIMS;
	o.field = fields;
	o.n_field = WIRE_MAX_FIELDS;
	field.mean = field.std = mean;
	field.n_mean = field.n_std = 3;
	ck_assert_int_eq(roundtrip_server(&m, &why), 0);
	o.n_field++;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	o.n_field = 2;
	field.n_shape++;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	field.n_shape = 3;
	field.dtype = (Batchd__Wire__Dtype)99;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	field.dtype = BATCHD__WIRE__DTYPE__INT64;
	field.kind = (Batchd__Wire__FieldKind)2;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	field.kind = BATCHD__WIRE__FIELD_KIND__RAGGED;
	ck_assert_int_eq(roundtrip_server(&m, &why), 0);
	field.n_std = 2;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	field.n_std = field.n_mean = 4;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	field.n_std = field.n_mean = 0;
	name[WIRE_MAX_FIELD_NAME] = 'x';
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	name[0] = '\0';
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);

	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH;
	m.batch = &b;
	b.n_rows = b.n_padding = 5;
	ck_assert_int_eq(roundtrip_server(&m, &why), 0);
	b.n_padding = 6;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);

	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_PROGRESS;
	m.progress = &p;
	memset(phase, 'p', sizeof phase);
	phase[WIRE_MAX_PHASE + 1] = '\0';
	p.phase = phase + 1;
	ck_assert_int_eq(roundtrip_server(&m, &why), 0);
	p.phase = phase;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
}
END_TEST

/* Packs a message of the client or the daemon with this body, and unpacks it as the other side would: NULL, or what is
 * wrong. */
static const char *wrong_with(bool of_client, const ProtobufCFieldDescriptor *kind, void *body)
{
	const Batchd__Wire__ClientMessage *c;
	const Batchd__Wire__ServerMessage *s;
	Batchd__Wire__ClientMessage client = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__ServerMessage server = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	const char *why = NULL;

	client.body_case = (Batchd__Wire__ClientMessage__BodyCase)kind->id;
	client.hello = body;
	server.body_case = (Batchd__Wire__ServerMessage__BodyCase)kind->id;
	server.welcome = body;
	size_t n = protobuf_c_message_pack(of_client ? &client.base : &server.base, f.bytes);
	ck_assert_uint_le(n, WIRE_MAX_BYTES);
	int r = of_client ? wire_unpack_client(f.arena, f.bytes, n, &c, &why)
			  : wire_unpack_server(f.arena, f.bytes, n, &s, &why);
	ck_assert((r == 0) == (why == NULL));
	return why;
}

enum { TOO_LONG = 62000, TOO_MANY = 5000, NO_VALUE = 63 };

/* Puts a text, bytes, a value or entries into a field: few, or more than any field may hold. */
static void set_field(unsigned char *body, const ProtobufCFieldDescriptor *field, bool large)
{
	static uint64_t numbers[TOO_MANY];
	static char texts[2][TOO_LONG + 1], *entry[2] = { texts[0], texts[1] };
	bool text = field->type == PROTOBUF_C_TYPE_STRING;
	void *at = body + field->offset;

	memset(texts[1], 'a', TOO_LONG);
	texts[0][0] = 'a';
	if (field->label == PROTOBUF_C_LABEL_REPEATED) {
		*(size_t *)(void *)(body + field->quantifier_offset) = large && !text ? TOO_MANY : 1;
		*(void **)at = text ? (void *)&entry[large] : numbers;
	} else if (text) {
		*(char **)at = texts[large];
	} else if (field->type == PROTOBUF_C_TYPE_BYTES) {
		*(ProtobufCBinaryData *)at =
			(ProtobufCBinaryData){ large ? TOO_LONG : 1, (unsigned char *)texts[large] };
	} else {
		*(int *)at = large ? NO_VALUE : 0;
	}
}

static void check_bound(bool of_client, const ProtobufCFieldDescriptor *kind, const ProtobufCFieldDescriptor *field)
{
	/* A later version of the daemon may have more of these. */
	static const char open[] = "Loaded.code Notice.kind Error.code";
	_Alignas(16) unsigned char body[1024];
	const ProtobufCMessageDescriptor *d = kind->descriptor;
	char name[100];

	snprintf(name, sizeof name, "%s.%s", d->short_name, field->name);
	for (int large = 0; large < 2; large++) {
		d->message_init((ProtobufCMessage *)(void *)body);
		set_field(body, field, large);
		const char *why = wrong_with(of_client, kind, body);
		if (large && !strstr(open, name))
			ck_assert_msg(why != NULL, "%s has no bound", name);
		else
			ck_assert_msg(!why || !strstr(why, "than 0 "), "%s may hold nothing: %s", name, why);
	}
}

START_TEST(test_every_field_has_a_bound)
{
	/* Whatever the peer fills: texts, bytes, repeated fields, enumerations. */
	const ProtobufCMessageDescriptor *sides[] = { &batchd__wire__server_message__descriptor,
						      &batchd__wire__client_message__descriptor };

	for (int of_client = 0; of_client < 2; of_client++)
		for (unsigned i = 0; i < sides[of_client]->n_fields; i++) {
			const ProtobufCFieldDescriptor *kind = &sides[of_client]->fields[i];
			const ProtobufCMessageDescriptor *d = kind->descriptor;

			for (unsigned k = 0; k < d->n_fields; k++)
				if (d->fields[k].type != PROTOBUF_C_TYPE_MESSAGE &&
				    (d->fields[k].type >= PROTOBUF_C_TYPE_ENUM ||
				     d->fields[k].label == PROTOBUF_C_LABEL_REPEATED))
					check_bound(of_client, kind, &d->fields[k]);
		}
}
END_TEST

START_TEST(test_a_device_comes_whole_or_not_at_all)
{
	/* UUID, handle and places of a device slab fit each other, or the message is refused. */
	unsigned char bytes[WIRE_IPC_HANDLE_BYTES + 1] = { 0 };
	char reason[WIRE_MAX_REASON + 2];
	const char *why;
	const Batchd__Wire__ClientMessage *out;
	Batchd__Wire__Open open;
	Batchd__Wire__ClientMessage client = open_of(&open);
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	Batchd__Wire__Opened o = BATCHD__WIRE__OPENED__INIT;

	for (size_t n = 0; n <= WIRE_UUID_BYTES + 1; n++) {
		open.device_uuid = (ProtobufCBinaryData){ n, bytes };
		ck_assert_int_eq(roundtrip(&client, &out, &why), n == 0 || n == WIRE_UUID_BYTES ? 0 : -EPROTO);
	}
	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED;
	m.opened = &o;
	o.n_slots = 4;
	o.slot_bytes = 4096;
	o.device_slot_bytes = 4096;
	o.device_bytes = 4 * 4096;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO); /* a slab on no device */
	o.device_uuid = (ProtobufCBinaryData){ WIRE_UUID_BYTES, bytes };
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO); /* of an unknown kind */
	o.device_kind = BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD;
	ck_assert_int_eq(roundtrip_server(&m, &why), 0); /* its descriptor comes beside the packet */
	ck_assert_uint_eq(wire_opened_fds(&o), 3);
	o.device_kind = BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD + 1;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	o.device_kind = BATCHD__WIRE__SLAB_KIND__CUDA_IPC;
	ck_assert_uint_eq(wire_opened_fds(&o), 2);
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO); /* no handle */
	o.ipc_handle = (ProtobufCBinaryData){ WIRE_IPC_HANDLE_BYTES, bytes };
	ck_assert_int_eq(roundtrip_server(&m, &why), 0);
	o.ipc_handle.len++;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	o.ipc_handle.len--;
	o.device_bytes--; /* the last slot is cut */
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	o.device_bytes = UINT64_MAX;
	o.device_slot_bytes = 4096 + WIRE_DEVICE_ALIGN;
	ck_assert_int_eq(roundtrip_server(&m, &why), 0);
	o.device_slot_bytes++; /* rows not aligned */
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	o.device_slot_bytes = 4096 - WIRE_DEVICE_ALIGN; /* smaller than the data copied into it */
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	o.device_slot_bytes = 0;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	o.device_slot_bytes = 4096;
	o.device_kind = BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD; /* with a handle as well */
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);
	o = (Batchd__Wire__Opened)BATCHD__WIRE__OPENED__INIT;
	o.device_kind = BATCHD__WIRE__SLAB_KIND__CUDA_VMM_FD; /* on no device */
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);

	o = (Batchd__Wire__Opened)BATCHD__WIRE__OPENED__INIT;
	memset(reason, 'r', sizeof reason);
	reason[WIRE_MAX_REASON + 1] = '\0';
	o.device_reason = reason + 1;
	ck_assert_int_eq(roundtrip_server(&m, &why), 0);
	o.device_reason = reason;
	ck_assert_int_eq(roundtrip_server(&m, &why), -EPROTO);

	Batchd__Wire__Seek seek = BATCHD__WIRE__SEEK__INIT;
	Batchd__Wire__Join join = BATCHD__WIRE__JOIN__INIT;
	char *const texts[] = { reason + 1, reason, (char *)"two\nlines", (char *)"" };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		seek.no_device = join.no_device = texts[i];
		client.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_SEEK;
		client.seek = &seek;
		ck_assert_int_eq(roundtrip(&client, &out, &why), i % 3 == 0 ? 0 : -EPROTO);
		client.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_JOIN;
		client.join = &join;
		ck_assert_int_eq(roundtrip(&client, &out, &why), i % 3 == 0 ? 0 : -EPROTO);
	}
}
END_TEST

START_TEST(test_fds_belong_to_open_and_opened_only)
{
	/* Any other message with descriptors is illegal. */
	Batchd__Wire__Hello h;
	Batchd__Wire__Open o;
	Batchd__Wire__ClientMessage hello = hello_of(&h, (char *)""), open_message = open_of(&o);
	Batchd__Wire__ServerMessage opened = BATCHD__WIRE__SERVER_MESSAGE__INIT,
				    batch = BATCHD__WIRE__SERVER_MESSAGE__INIT;

	Batchd__Wire__Opened body = BATCHD__WIRE__OPENED__INIT;

	opened.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_OPENED;
	opened.opened = &body;
	batch.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_BATCH;
	ck_assert(wire_client_fds_ok(&hello, 0) && !wire_client_fds_ok(&hello, 1));
	ck_assert(wire_client_fds_ok(&open_message, 0) && wire_client_fds_ok(&open_message, WIRE_MAX_FDS));
	ck_assert(wire_server_fds_ok(&opened, 2) && !wire_server_fds_ok(&opened, 1) && !wire_server_fds_ok(&opened, 3));
	ck_assert(wire_server_fds_ok(&batch, 0) && !wire_server_fds_ok(&batch, 1));
}
END_TEST

START_TEST(test_producing_has_a_descriptor_when_it_brings_a_slab)
{
	/* The answer to Produce has none, a slab's announcement exactly one. */
	Batchd__Wire__ServerMessage m = BATCHD__WIRE__SERVER_MESSAGE__INIT;
	Batchd__Wire__Producing p = BATCHD__WIRE__PRODUCING__INIT;

	m.body_case = BATCHD__WIRE__SERVER_MESSAGE__BODY_PRODUCING;
	m.producing = &p;
	ck_assert(wire_server_fds_ok(&m, 0) && !wire_server_fds_ok(&m, 1));
	p.slab = 1;
	ck_assert(wire_server_fds_ok(&m, 1) && !wire_server_fds_ok(&m, 0) && !wire_server_fds_ok(&m, 2));
}
END_TEST

START_TEST(test_producers_names_and_last_words_are_bounded)
{
	/* A name appears in log lines, last words in an Error. */
	const Batchd__Wire__ClientMessage *out;
	Batchd__Wire__ClientMessage m = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__Produce p = BATCHD__WIRE__PRODUCE__INIT;
	Batchd__Wire__ProducerEnd e = BATCHD__WIRE__PRODUCER_END__INIT;
	char name[WIRE_MAX_PRODUCER + 2], text[WIRE_MAX_TEXT + 2];
	const char *why;

	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCE;
	m.produce = &p;
	ck_assert_int_eq(roundtrip(&m, &out, &why), -EPROTO); /* none */
	memset(name, 'n', sizeof name);
	name[WIRE_MAX_PRODUCER + 1] = '\0';
	p.name = name;
	ck_assert_int_eq(roundtrip(&m, &out, &why), -EPROTO);
	p.name = name + 1;
	ck_assert_int_eq(roundtrip(&m, &out, &why), 0);
	name[5] = '\n';
	ck_assert_int_eq(roundtrip(&m, &out, &why), -EPROTO);

	m.body_case = BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCER_END;
	m.producer_end = &e;
	memset(text, '\n', sizeof text);
	text[WIRE_MAX_TEXT + 1] = '\0';
	e.text = text;
	ck_assert_int_eq(roundtrip(&m, &out, &why), -EPROTO);
	e.text = text + 1;
	ck_assert_int_eq(roundtrip(&m, &out, &why), 0);
}
END_TEST

START_TEST(test_socket_paths_are_refused_rather_than_cut)
{
	/* 107 bytes fit the address, 108 do not. */
	char path[110];
	struct sockaddr_un address;
	socklen_t n;

	memset(path, '/', sizeof path);
	path[107] = '\0';
	ck_assert_int_eq(wire_address(path, &address, &n), 0);
	ck_assert_str_eq(address.sun_path, path);
	path[107] = '/';
	path[108] = '\0';
	ck_assert_int_eq(wire_address(path, &address, &n), -ENAMETOOLONG);
	ck_assert_int_eq(wire_address("", &address, &n), -EINVAL);
}
END_TEST

START_TEST(test_every_code_and_message_has_a_name)
{
	/* Log lines and exceptions use them. */
	Batchd__Wire__ClientMessage c = BATCHD__WIRE__CLIENT_MESSAGE__INIT;
	Batchd__Wire__ServerMessage s = BATCHD__WIRE__SERVER_MESSAGE__INIT;

	for (int i = 0; i <= BATCHD__WIRE__ERROR_CODE__INTERNAL; i++)
		ck_assert_str_ne(wire_code_name((Batchd__Wire__ErrorCode)i), "UNKNOWN");
	ck_assert_str_eq(wire_code_name((Batchd__Wire__ErrorCode)99), "UNKNOWN");
	for (unsigned i = 0; i < batchd__wire__client_message__descriptor.n_fields; i++) {
		c.body_case =
			(Batchd__Wire__ClientMessage__BodyCase)batchd__wire__client_message__descriptor.fields[i].id;
		ck_assert_str_ne(wire_client_name(&c), "unknown");
	}
	for (unsigned i = 0; i < batchd__wire__server_message__descriptor.n_fields; i++) {
		s.body_case =
			(Batchd__Wire__ServerMessage__BodyCase)batchd__wire__server_message__descriptor.fields[i].id;
		ck_assert_str_ne(wire_server_name(&s), "unknown");
	}
}
END_TEST

SUITE(wire)
{
	Suite *suite = suite_create("wire");
	TCase *packets = tcase_create("packets"), *messages = tcase_create("messages");

	tcase_add_checked_fixture(packets, setup, teardown);
	tcase_add_test(packets, test_message_and_its_fds_arrive_close_on_exec);
	tcase_add_test(packets, test_more_fds_than_asked_for_are_closed_and_refused);
	tcase_add_test(packets, test_fd_flood_is_closed_by_the_kernel_or_by_us);
	tcase_add_test(packets, test_fd_table_full_refuses_the_packet_and_keeps_the_connection);
	tcase_add_test(packets, test_packet_of_the_largest_size_passes_and_one_more_does_not);
	tcase_add_test(packets, test_end_of_connection_full_socket_and_empty_socket_differ);
	tcase_add_test(packets, test_last_words_of_a_peer_that_left_in_a_hurry_are_heard);
	suite_add_tcase(suite, packets);
	tcase_add_checked_fixture(messages, setup, teardown);
	tcase_add_test(messages, test_names_must_be_printable_utf8_within_their_limit);
	tcase_add_test(messages, test_open_with_long_names_or_unknown_enumerations_is_refused);
	tcase_add_test(messages, test_indices_up_to_the_limit_arrive_in_order);
	tcase_add_test(messages, test_message_without_a_known_body_is_refused);
	tcase_add_test(messages, test_packet_that_grows_when_unpacked_is_refused_within_the_arena);
	tcase_add_test(messages, test_body_sent_twice_is_one_body);
	tcase_add_test(messages, test_wanted_fields_within_and_beyond_their_limits);
	tcase_add_test(messages, test_server_messages_within_and_beyond_their_limits);
	tcase_add_test(messages, test_every_field_has_a_bound);
	tcase_add_test(messages, test_a_device_comes_whole_or_not_at_all);
	tcase_add_test(messages, test_fds_belong_to_open_and_opened_only);
	tcase_add_test(messages, test_producing_has_a_descriptor_when_it_brings_a_slab);
	tcase_add_test(messages, test_producers_names_and_last_words_are_bounded);
	tcase_add_test(messages, test_socket_paths_are_refused_rather_than_cut);
	tcase_add_test(messages, test_every_code_and_message_has_a_name);
	suite_add_tcase(suite, messages);
	return suite;
}
