/* Memory that runs out in a trainer: of all the allocations and mappings that the whole of libbatchd makes (opening,
 * batches in every mode, tokens, reconnecting, producing, status, batches on a GPU), the n-th fails, for every n: once,
 * and with all that follow. Each call either succeeds or gives a code and a text that says that memory is short;
 * nothing is left behind, and the next trainer of the same process works.
 *
 * The linker's --wrap counts the allocations of our own objects (see the Makefile), under the sanitizers as well, which
 * look for leaks. Without sanitizers the allocations that libc and protobuf-c make for us are counted too, and so are
 * blocks. Only the armed thread is short of memory. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <sys/mman.h>

#include "../client/batchd.h"
#include "loader/dlpack.h"
#include "support/own-heap.h"
#include "support/packets.h"
#include "support/suite.h"

/* ---- the shortage ---- */

static _Thread_local struct {
	bool armed, for_good, failing;
	bool ours_only; /* without the allocations of libraries; their blocks are not counted either, because the driver
	                 * double keeps some */
	long countdown;
	unsigned n_failed;
	long n_blocks; /* blocks on the heap, relative to when it was armed */
} shortage;

static bool refuses(bool ours)
{
	if (!shortage.armed || shortage.ours_only != ours)
		return false;
	bool hit = shortage.failing || --shortage.countdown == 0;
	shortage.failing = hit && shortage.for_good;
	shortage.n_failed += hit;
	if (hit)
		errno = ENOMEM;
	return hit;
}

#define WRAP(type, name, parameters, arguments, ours, failure) \
	type __real_##name parameters; \
	type __wrap_##name parameters; \
	type __wrap_##name parameters \
	{ \
		return (ours) ? failure : __real_##name arguments; \
	}

/* With a heap of our own everything is seen there, unless only our objects' calls count. */
#define OURS (refuses(true) || (!OWN_HEAP && refuses(false)))
WRAP(void *, malloc, (size_t n), (n), OURS, NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), OURS, NULL)
WRAP(void *, realloc, (void *p, size_t n), (p, n), OURS, NULL)
WRAP(char *, strdup, (const char *s), (s), OURS, NULL)
WRAP(FILE *, open_memstream, (char **text, size_t *n), (text, n), OURS, NULL)
WRAP(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset), (at, n, prot, flags, fd, offset),
     refuses(true) || refuses(false), MAP_FAILED)

int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out, const char *fmt, ...)
{
	if (OURS)
		return -1;
	va_list ap;
	va_start(ap, fmt);
	int n = vasprintf(out, fmt, ap);
	va_end(ap);
	return n;
}

#if OWN_HEAP
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static void *count(void *block)
{
	shortage.n_blocks += shortage.armed && block;
	return block;
}

__attribute__((visibility("default"))) void *malloc(size_t n)
{
	return refuses(false) ? NULL : count(__libc_malloc(n));
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	return refuses(false) ? NULL : count(__libc_calloc(n, size));
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t n)
{
	void *block = refuses(false) ? NULL : __libc_realloc(p, n);
	return p ? block : count(block);
}

__attribute__((visibility("default"))) void free(void *p)
{
	shortage.n_blocks -= shortage.armed && p;
	__libc_free(p);
}
#endif

/* Resources of the process other than memory. */
static unsigned n_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned n_slabs_mapped(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;
	while (fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:") != NULL;
	fclose(f);
	return n;
}

/* ---- lives ---- */

/* Each life exercises everything of its kind. Returns 0, or the first negative code with its text. Everything, loader
 * and producer included, is freed by then. No assertions in here, because those allocate. */
struct life {
	const char *name;
	int (*live)(char *why, size_t size);
	unsigned least; /* the least number of allocations */
	bool ours_only;
};

static char token[BATCHD_TOKEN_BYTES];

static void options_for(struct batchd_options *o, const char *job)
{
	batchd_options_init(o);
	o->socket = path;
	o->dataset = "random:length=64,shape=8,dtype=float32,classes=3";
	o->job = job;
	o->batch_size = 8;
	o->n_slots = 3;
	o->seed = 5;
	o->shuffle = 1;
	o->autostart = 0;
	o->reconnect_ms = 200;
	o->program = "needy";
}

/* Closes the loader, keeps its error. */
static int end(struct batchd_loader *l, int r, char *why, size_t size)
{
	if (r < 0)
		snprintf(why, size, "%s", batchd_error(l));
	batchd_close(l);
	return r < 0 ? r : 0;
}

static int take(struct batchd_loader *l, unsigned n)
{
	struct batchd_batch b = { .size_bytes = sizeof(b) };
	int r = 0;
	for (unsigned i = 0; i < n && r == 0; i++) {
		r = batchd_next(l, &b, BATCHD_FOREVER);
		if (r == 0) {
			((volatile float *)b.data)[0] = 1; /* forces a private copy of a page */
			r = batchd_release(l, b.slot, b.generation);
		}
	}
	return r == BATCHD_AGAIN ? BATCHD_E_INTERNAL : r;
}

/* Takes a batch, of which only a tensor is left then, and ends that. */
static int take_as_tensor(struct batchd_loader *l)
{
	struct batchd_batch b = { .size_bytes = sizeof(b) };
	struct dl_managed *tensor = NULL;
	struct batchd_array a;
	int r = batchd_next(l, &b, BATCHD_FOREVER);

	if (r < 0)
		return r;
	r = batchd_get_field_at(l, &b, 0, &a);
	if (r == 0)
		r = batchd_dlpack(l, &b, &a, 0, (void **)&tensor);
	batchd_release(l, b.slot, b.generation);
	if (tensor)
		tensor->deleter(tensor);
	return r;
}

static int live_alone(char *why, size_t size)
{
	struct batchd_options o;
	struct batchd_loader *l;
	struct batchd_info info = { .size_bytes = sizeof(info) };
	uint64_t n;
	options_for(&o, "alone");
	int r = batchd_open(&o, &l, why, size);
	if (r < 0)
		return r;
	batchd_get_info(l, &info);
	r = batchd_start(l, 0, 0, 0, &n);
	if (r == 0)
		r = take(l, 4);
	if (r == 0 && !batchd_class(l, 2)) {
		r = BATCHD_E_NOMEM; /* there is no code here; the text counts */
	}
	if (r == 0)
		r = batchd_token(l, NULL, token, sizeof(token));
	if (r == 0)
		r = take_as_tensor(l);
	if (r == 0)
		r = take(l, 3);
	return end(l, r, why, size);
}

static int live_writable(char *why, size_t size)
{
	struct batchd_options o;
	struct batchd_loader *l;
	options_for(&o, "writable");
	o.writable = 1;
	int r = batchd_open(&o, &l, why, size);
	if (r < 0)
		return r;
	r = batchd_start(l, 0, 0, 0, NULL);
	return end(l, r == 0 ? take(l, 6) : r, why, size);
}

static int live_in_a_group(char *why, size_t size)
{
	struct batchd_options o;
	struct batchd_loader *l[2] = { NULL, NULL };
	struct batchd_position at = { .size_bytes = sizeof(at) };
	options_for(&o, "group");
	o.mode = BATCHD_SHARE;
	o.group_batch_size = 8;
	int r = 0;
	for (int i = 0; i < 2 && r == 0; i++) {
		o.batch_size = i ? 4 : 8;
		r = batchd_open(&o, &l[i], why, size);
		if (r < 0) {
			batchd_close(l[0]);
			return r;
		}
		r = batchd_join(l[i], BATCHD_JOIN_NEXT, &at, 20000);
		for (int k = 0; k <= i && r == 0; k++)
			r = take(l[k], 2);
		if (r < 0)
			snprintf(why, size, "%s%s", batchd_error(l[0]), i ? batchd_error(l[1]) : "");
	}
	batchd_close(l[0]);
	batchd_close(l[1]);
	return r < 0 ? r : 0;
}

static int live_with_own_batches(char *why, size_t size)
{
	struct batchd_options o;
	struct batchd_loader *l;
	uint64_t indices[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };
	options_for(&o, "own");
	o.own_batches = 1;
	o.shuffle = 0;
	int r = batchd_open(&o, &l, why, size);
	if (r < 0)
		return r;
	r = batchd_start(l, 0, 0, 0, NULL);
	for (int i = 0; i < 6 && r == 0; i++) {
		r = batchd_push(l, indices, 8);
		if (r == 0)
			r = take(l, 1);
	}
	if (r == 0)
		r = batchd_push_end(l);
	return end(l, r, why, size);
}

/* Resumes from the token that the first life has left, and from a token of another data set, which is refused. */
static int live_again(char *why, size_t size)
{
	struct batchd_options o;
	struct batchd_loader *l;
	struct batchd_position at = { .size_bytes = sizeof(at) };
	options_for(&o, "again");
	int r = batchd_open(&o, &l, why, size);
	if (r < 0)
		return r;
	r = batchd_resume(l, token, &at);
	if (r == 0)
		r = batchd_start(l, at.epoch, at.base, at.step, NULL);
	if (r == 0)
		r = take(l, 3);
	r = end(l, r, why, size);
	if (r < 0)
		return r;
	o.dataset = "random:length=72,shape=8,dtype=float32,classes=3";
	o.job = "changed";
	r = batchd_open(&o, &l, why, size);
	if (r < 0)
		return r;
	r = batchd_resume(l, token, &at);
	if (r == BATCHD_E_INVALID && !strstr(batchd_error(l), "memory"))
		r = 0; /* as expected: it is another data set */
	else if (r == 0)
		r = BATCHD_E_INTERNAL;
	return end(l, r, why, size);
}

/* Its connection is cut while a batch is lent; it continues with the next batch. */
static int live_on_without_a_connection(char *why, size_t size)
{
	struct batchd_options o;
	struct batchd_loader *l;
	struct batchd_batch b = { .size_bytes = sizeof(b) };
	options_for(&o, "cut");
	int r = batchd_open(&o, &l, why, size);
	if (r < 0)
		return r;
	r = batchd_start(l, 0, 0, 0, NULL);
	if (r == 0)
		r = take(l, 1);
	if (r == 0)
		r = batchd_next(l, &b, BATCHD_FOREVER);
	if (r == 0)
		shutdown(batchd_fd(l), SHUT_RDWR);
	if (r == 0)
		r = take(l, 4);
	if (b.data) {
		int released = batchd_release(l, b.slot, b.generation); /* in any case, otherwise the batch stays
		                                                         * mapped */
		r = r ? r : released;
	}
	if (r == 0)
		r = take(l, 1);
	return end(l, r, why, size);
}

static int live_curious(char *why, size_t size)
{
	char *json;
	int r = batchd_status(path, &json, why, size);
	if (r == 0 && (!strchr(json, '{') || json[strlen(json) - 1] != '}')) {
		snprintf(why, size, "half a status: %s", json);
		r = BATCHD_E_INTERNAL;
	}
	free(json);
	return r;
}

/* A single image, which is none: the daemon's answer names what is wrong. */
static int live_on_single_images(char *why, size_t size)
{
	struct batchd_load_options o;
	struct batchd_load *l;
	struct batchd_image image = { .bytes = "no image", .n_bytes = 8 };
	static float row[3 * 224 * 224];
	uint32_t failed = 0;
	batchd_load_options_init(&o);
	o.socket = path;
	o.autostart = 0;
	int r = batchd_load_open(&o, &l, why, size);
	if (r < 0)
		return r;
	r = batchd_load_images(l, &image, 1, row, &failed, why, size);
	batchd_load_close(l);
	return r == BATCHD_E_BAD_DATA && failed == 0 ? 0 : r < 0 ? r : BATCHD_E_INTERNAL;
}

static atomic_bool given_up;

static int has_given_up(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	(void)arg, (void)phase, (void)done, (void)total;
	return atomic_load(&given_up);
}

/* Takes the producer's batches, in a thread that is not short of memory. */
static void *consumer_main(void *arg)
{
	struct batchd_options o;
	struct batchd_loader *l;
	char text[512];
	(void)arg;
	options_for(&o, "served");
	o.dataset = "serve:needy";
	o.shuffle = 0;
	o.on_progress = has_given_up;
	o.reconnect_ms = 0;
	if (batchd_open(&o, &l, text, sizeof(text)) < 0)
		return NULL;
	if (batchd_start(l, 0, 0, 0, NULL) == 0)
		take(l, 3);
	batchd_close(l);
	return NULL;
}

static int produce(struct batchd_producer *p)
{
	struct batchd_fill f;
	struct batchd_array a = { .dtype = BATCHD_FLOAT32, .n_dims = 2, .shape = { 8, 4 } };
	int r = 0;
	for (int i = 0; i < 3 && r == 0; i++) {
		r = batchd_produce_next(p, &f, 20000);
		if (r == 0)
			r = batchd_produce_lay(p, &a, 1, "x", 1);
		if (r == 0)
			memset(a.data, i, a.n_bytes);
		if (r == 0)
			r = batchd_produce_filled(p, 8);
	}
	return r == BATCHD_AGAIN ? BATCHD_E_INTERNAL : r;
}

static int live_for_others(char *why, size_t size)
{
	struct batchd_produce_options o;
	struct batchd_producer *p;
	pthread_t consumer;
	batchd_produce_options_init(&o);
	o.socket = path;
	o.name = "needy";
	o.slot_bytes = 4096;
	o.n_batches = 8;
	o.autostart = 0;
	int r = batchd_produce_open(&o, &p, why, size);
	if (r < 0)
		return r;
	bool armed = shortage.armed;
	shortage.armed = false;
	atomic_store(&given_up, false);
	if (pthread_create(&consumer, NULL, consumer_main, NULL))
		abort();
	shortage.armed = armed;
	r = produce(p);
	if (r < 0)
		snprintf(why, size, "%s", batchd_produce_error(p));
	batchd_produce_close(p, "enough");
	atomic_store(&given_up, r < 0);
	shortage.armed = false;
	pthread_join(consumer, NULL);
	shortage.armed = armed;
	return r < 0 ? r : 0;
}

static int live_on_a_gpu(char *why, size_t size)
{
	struct batchd_options o;
	struct batchd_loader *l;
	struct batchd_batch b = { .size_bytes = sizeof(b) };
	static void *tensor[2];
	options_for(&o, "gpu");
	o.device = "cuda";
	o.shuffle = 0;
	int r = batchd_open(&o, &l, why, size);
	if (r < 0)
		return r;
	r = batchd_start(l, 0, 0, 0, NULL);
	for (int i = 0; i < 4 && r == 0; i++) {
		r = batchd_next(l, &b, BATCHD_FOREVER);
		if (r == 0)
			r = batchd_cuda_wait(l, b.slot, b.generation, NULL);
		if (r == 0)
			r = batchd_cuda_release(l, b.slot, b.generation, NULL);
	}
	for (int i = 0; i < 2 && r == 0; i++) {
		tensor[i] = NULL;
		r = batchd_next(l, &b, BATCHD_FOREVER);
		if (r == 0)
			r = batchd_cuda_dlpack(l, &b, i, NULL, &tensor[i]);
		if (r < 0) {
			batchd_cuda_release(l, b.slot, b.generation, NULL); /* otherwise it stays mapped */
			break;
		}
		if (i)
			((struct dl_managed_versioned *)tensor[i])->deleter(tensor[i]);
		else
			((struct dl_managed *)tensor[i])->deleter(tensor[i]);
	}
	return end(l, r, why, size);
}

static const struct life lives[] = {
	{ "alone", live_alone, 6, false },       { "writable", live_writable, 6, false },
	{ "group", live_in_a_group, 12, false }, { "own", live_with_own_batches, 6, false },
	{ "again", live_again, 12, false },      { "cut", live_on_without_a_connection, 12, false },
	{ "status", live_curious, 2, false },    { "producer", live_for_others, 4, false },
	{ "gpu", live_on_a_gpu, 8, true },       { "images", live_on_single_images, 3, false },
};
enum { N_LIVES = sizeof(lives) / sizeof(*lives) };

/* ---- the test ---- */

struct remains {
	unsigned fds, slabs;
};

static struct remains remains_now(void)
{
	return (struct remains){ .fds = n_fds(), .slabs = n_slabs_mapped() };
}

/* The n-th allocation fails in one life. Reports the result, whether the shortage came, and what it left behind. */
static int live_short(const struct life *x, long n, bool for_good, bool *came, char *why, size_t size,
		      struct remains *grown)
{
	struct remains before = remains_now();
	shortage.n_failed = 0;
	shortage.n_blocks = 0;
	shortage.failing = false;
	shortage.for_good = for_good;
	shortage.ours_only = x->ours_only;
	shortage.countdown = n;
	shortage.armed = true;
	int r = x->live(why, size);
	shortage.armed = false;
	*came = shortage.n_failed > 0;
	struct remains after = remains_now();
	*grown = (struct remains){ .fds = after.fds - before.fds, .slabs = after.slabs - before.slabs };
	return r;
}

START_TEST(test_any_allocation_may_fail_in_a_trainer)
{
	const struct life *x = &lives[_i / 2];
	bool for_good = _i % 2, came;
	char why[4096] = "", fine[4096] = "";
	struct remains grown;
	unsigned n = 1, n_errors = 0;
	int r;
	ck_assert_msg(live_alone(fine, sizeof(fine)) == 0, "%s", fine); /* for its token */
	for (int i = 0; i < 3; i++)                                     /* allocations that are made once per process */
		ck_assert_msg((r = x->live(fine, sizeof(fine))) == 0, "%s: %s: %s", x->name, batchd_code_name(r), fine);
	for (;; n++) {
		r = live_short(x, n, for_good, &came, why, sizeof(why), &grown);
		ck_assert_msg(r == 0 || came, "%s: without a shortage: %s: %s", x->name, batchd_code_name(r), why);
		ck_assert_msg(r == 0 || strstr(why, "memory"), "%s, allocation %u: %s: %s", x->name, n,
			      batchd_code_name(r), why);
		ck_assert_msg(grown.fds == 0 && grown.slabs == 0,
			      "%s, allocation %u (%s): %d descriptors and %d mappings are left", x->name, n, why,
			      (int)grown.fds, (int)grown.slabs);
		ck_assert_msg(shortage.n_blocks == 0 || x->ours_only, "%s, allocation %u (%s): %ld blocks are left",
			      x->name, n, why, shortage.n_blocks);
		n_errors += r < 0;
		r = x->live(fine, sizeof(fine));
		ck_assert_msg(r == 0, "%s, after allocation %u: %s: %s", x->name, n, batchd_code_name(r), fine);
		if (!came)
			break;
		ck_assert_uint_lt(n, 2000);
	}
	printf("%s: %u allocations, %u errors\n", x->name, n - 1, n_errors);
	ck_assert_uint_ge(n - 1, x->least);
	ck_assert_uint_ge(n_errors, 1);
	stop_daemon();
}
END_TEST

static void quick_daemon(struct config *c)
{
	c->linger_ns = 0;
	c->workers = 2;
	c->io_threads = 2;
	c->limits.sessions = c->limits.sessions_per_user = 4096; /* the process that failed while it held batches is
	                                                          * this one, which lives on */
	c->limits.fds_per_user = 1 << 16;
}

static void setup(void)
{
	char driver[4200];
	snprintf(driver, sizeof(driver), "%s/libfakecuda.so",
		 getenv("BATCHD_BUILD") ? getenv("BATCHD_BUILD") : "build");
	setenv("BATCHD_LIBCUDA", driver, 1);
	setenv("FAKECUDA_QUIET", "1", 0);
	start_daemon_with(quick_daemon);
}

SUITE(client_shortage)
{
	Suite *s = suite_create("client-shortage");
	TCase *t = tcase_create("client-shortage");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, test_any_allocation_may_fail_in_a_trainer, 0, 2 * N_LIVES);
	suite_add_tcase(s, t);
	return s;
}
