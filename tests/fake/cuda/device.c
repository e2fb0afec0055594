/* The GPUs of the simulated machine, which of them this process sees, and how much of their memory is used. With
 * $FAKECUDA_DIR, processes share a small table per GPU there, which tells live processes from dead ones. So memory runs
 * out for all of them, and exclusive mode excludes other processes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

enum { ROWS = 256 };

struct table {
	struct {
		int32_t pid, has_context;
		uint64_t start, n_used;
	} rows[ROWS];
};

static struct table *tables[MOST_DEVICES];
static int table_fds[MOST_DEVICES];

static void make_uuid(unsigned char uuid[16], int physical)
{
	uint64_t state = 0x6370756661746462u + (uint64_t)physical, a = random_next(&state), b = random_next(&state);

	memcpy(uuid, &a, 8);
	memcpy(uuid + 8, &b, 8);
	if (settings.mig) /* an instance has a UUID of its own */
		uuid[0] = (unsigned char)(uuid[0] ^ 0x80 ^ settings.mig_name[0]);
}

static bool same_uuid(const char *text, const unsigned char uuid[16])
{
	char hex[40];

	snprintf(hex, sizeof hex, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", uuid[0],
		 uuid[1], uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9], uuid[10], uuid[11],
		 uuid[12], uuid[13], uuid[14], uuid[15]);
	text += !strncmp(text, "GPU-", 4) || !strncmp(text, "MIG-", 4) ? 4 : 0;
	return *text && !strncmp(hex, text, strlen(text));
}

/* As CUDA does: the list ends at the first entry that names no GPU. */
int device_find_visible(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char *copy, *rest;

	fake.n_devices = 0;
	if (!visible) {
		for (int i = 0; i < settings.n_gpus; i++)
			fake.devices[fake.n_devices++].physical = i;
	} else {
		rest = copy = strdup(visible);
		for (char *one; copy && (one = strsep(&rest, ",")) && fake.n_devices < MOST_DEVICES;) {
			unsigned char uuid[16];
			char *end;
			long n = strtol(one, &end, 10);

			if (end == one || *end)
				for (n = 0; n < settings.n_gpus; n++) {
					make_uuid(uuid, (int)n);
					if (same_uuid(one, uuid))
						break;
				}
			if (n < 0 || n >= settings.n_gpus)
				break;
			fake.devices[fake.n_devices++].physical = (int)n;
		}
		free(copy);
	}
	for (int i = 0; i < fake.n_devices; i++) {
		make_uuid(fake.devices[i].uuid, fake.devices[i].physical);
		fake.devices[i].n_bytes = settings.memory_bytes;
	}
	return fake.n_devices;
}

static struct table *table_of(const struct device *d)
{
	int i = d->physical, fd;
	char path[4096];

	if (tables[i] || !settings.dir)
		return tables[i];
	snprintf(path, sizeof path, "%s/gpu%d", settings.dir, i);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd >= 0)
		(void)fchmod(fd, 0666); /* for processes of other users; only the file's owner may do this */
	if (fd < 0 || ftruncate(fd, sizeof(struct table))) {
		fprintf(stderr, "fakecuda: cannot open %s\n", path);
		abort();
	}
	void *map = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		abort();
	table_fds[i] = fd;
	return tables[i] = map;
}

/* The row of this process; made if there is none, maybe in place of a dead process's. The file is locked. */
static int row_of(struct table *t)
{
	int row = -1, free_row = -1;

	for (int i = 0; i < ROWS; i++) {
		if (t->rows[i].pid == getpid() && t->rows[i].start == process_start(getpid()))
			row = i;
		else if (t->rows[i].pid && !process_alive(t->rows[i].pid, t->rows[i].start))
			memset(&t->rows[i], 0, sizeof t->rows[i]);
		if (!t->rows[i].pid && free_row < 0)
			free_row = i;
	}
	if (row < 0 && free_row >= 0) {
		row = free_row;
		t->rows[row].pid = getpid();
		t->rows[row].start = process_start(getpid());
	}
	if (row < 0)
		fprintf(stderr, "fakecuda: more than %d processes\n", ROWS), abort();
	return row;
}

int device_of(const struct block *b)
{
	for (int i = 0; i < fake.n_devices; i++)
		if (fake.devices[i].physical == b->physical && !strcmp(b->mig, settings.mig_name))
			return i;
	return -1;
}

size_t device_used(const struct device *d)
{
	struct table *t = table_of(d);
	size_t n = 0;

	if (!t)
		return d->n_used;
	flock(table_fds[d->physical], LOCK_EX);
	row_of(t);
	for (int i = 0; i < ROWS; i++)
		n += t->rows[i].n_used;
	flock(table_fds[d->physical], LOCK_UN);
	return n;
}

bool device_charge(struct device *d, size_t n_bytes)
{
	struct table *t = table_of(d);
	size_t used = device_used(d);

	if (n_bytes > d->n_bytes || used > d->n_bytes - n_bytes)
		return false;
	d->n_used += n_bytes;
	if (t) {
		flock(table_fds[d->physical], LOCK_EX);
		t->rows[row_of(t)].n_used = d->n_used;
		flock(table_fds[d->physical], LOCK_UN);
	}
	return true;
}

void device_refund(struct device *d, size_t n_bytes)
{
	struct table *t = table_of(d);

	d->n_used -= n_bytes;
	if (t) {
		flock(table_fds[d->physical], LOCK_EX);
		t->rows[row_of(t)].n_used = d->n_used;
		flock(table_fds[d->physical], LOCK_UN);
	}
}

bool device_claim(const struct device *d)
{
	struct table *t = table_of(d);
	bool ok = true;
	int own;

	if (!t)
		return true;
	flock(table_fds[d->physical], LOCK_EX);
	own = row_of(t);
	for (int i = 0; i < ROWS; i++)
		ok &= i == own || !t->rows[i].pid || !t->rows[i].has_context;
	t->rows[own].has_context = ok;
	flock(table_fds[d->physical], LOCK_UN);
	return ok;
}

/* ---- calls ---- */

/* The driver shuts down in an atexit handler, so before all handlers that were registered before the first cuInit. */
static void deinitialize(void)
{
	if (atomic_load(&fake.pid) != getpid())
		return;
	if (atomic_load(&fake.n_inside))
		violation("the process ends while another thread is in the driver");
	atomic_store(&fake.deinitialized, true);
}

static bool under_mps;

bool device_under_mps(void)
{
	return under_mps;
}

/* MPS is looked for at the default place, which needs no folder here, or where the variable says. */
static bool reaches_mps(void)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");

	settings_read();
	return settings.mps &&
	       (!directory || !*directory || !strcmp(directory, "/tmp/nvidia-mps") || access(directory, X_OK) == 0);
}

/* MPS serves one user at a time: another user's process waits here until all processes of the first have ended. */
static void connect_to_mps(void)
{
	if (atomic_load(&fake.pid) || !reaches_mps())
		return;
	while (settings.mps_is_taken)
		pause();
	under_mps = true;
}

CUresult cuInit(unsigned flags)
{
	struct call c;
	connect_to_mps();
	CUresult r = call_begin(&c, API_cuInit, NEED_NOTHING);

	if (!r && flags)
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		r = settings.init_result;
	if (!r && !atomic_load(&fake.pid)) {
		if (!device_find_visible() || atexit(deinitialize))
			r = CUDA_ERROR_NO_DEVICE;
		else
			atomic_store(&fake.pid, getpid());
	}
	return call_end(&c, r);
}

CUresult cuDriverGetVersion(int *version)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDriverGetVersion, NEED_NOTHING);

	if (!r)
		*version = settings.version;
	return call_end(&c, r);
}

static CUresult valid(CUdevice device)
{
	return device >= 0 && device < fake.n_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *n)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDeviceGetCount, NEED_INIT);

	if (!r)
		*n = fake.n_devices;
	return call_end(&c, r);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDeviceGet, NEED_INIT);

	if (!r)
		r = valid(ordinal);
	if (!r)
		*device = ordinal;
	return call_end(&c, r);
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDeviceGetName, NEED_INIT);

	if (!r)
		r = size > 0 ? valid(device) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		snprintf(name, (size_t)size, "Fake GPU %d%s", fake.devices[device].physical,
			 settings.mig ? " MIG 1g" : "");
	return call_end(&c, r);
}

static CUresult get_uuid(enum api api, CUuuid *uuid, CUdevice device)
{
	struct call c;
	CUresult r = call_begin(&c, api, NEED_INIT);

	if (!r)
		r = valid(device);
	if (!r)
		memcpy(uuid->bytes, fake.devices[device].uuid, 16);
	if (!r && settings.mig && api == API_cuDeviceGetUuid) /* the old call gives the UUID of the whole GPU */
		uuid->bytes[0] = (char)(uuid->bytes[0] ^ 0x80 ^ settings.mig_name[0]);
	return call_end(&c, r);
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return get_uuid(API_cuDeviceGetUuid, uuid, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	return get_uuid(API_cuDeviceGetUuid_v2, uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDeviceTotalMem_v2, NEED_INIT);

	if (!r)
		r = valid(device);
	if (!r)
		*bytes = fake.devices[device].n_bytes;
	return call_end(&c, r);
}

/* The attributes of an H200 that batchd or a framework may ask for; every other existing attribute is 0. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	static const struct {
		int attribute, value;
	} known[] = {
		{ 1, 1024 },  { 2, 1024 },  { 3, 1024 }, { 4, 64 },     { 5, 2147483647 }, { 6, 65535 },
		{ 7, 65535 }, { 8, 49152 }, { 10, 32 },  { 12, 65536 }, { 13, 1980000 },   { 15, 1 },
		{ 16, 132 },  { 18, 0 },    { 19, 1 },   { 31, 1 },     { 34, 0 },         { 38, 60 << 20 },
		{ 39, 2048 }, { 40, 3 },    { 41, 1 },   { 75, 9 },     { 76, 0 },         { 78, 1 },
		{ 91, 1 },    { 99, 1 },    { 115, 1 },
	};
	struct call c;
	CUresult r = call_begin(&c, API_cuDeviceGetAttribute, NEED_INIT);

	if (!r)
		r = valid(device);
	if (!r && (attribute < 1 || attribute > 150))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r) {
		*value = 0;
		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			if (known[i].attribute == attribute)
				*value = known[i].value;
		if (attribute == 20)
			*value = settings.prohibited ? 2 : settings.exclusive ? 3 : 0;
		if (attribute == 33)
			*value = fake.devices[device].physical + 1;
		if (attribute == 113)
			*value = settings.read_only_register;
		if (attribute == 133)
			*value = device_under_mps();
		if (attribute == 134)
			*value = settings.numa_node;
		if (attribute == 102 || attribute == 103)
			*value = !settings.no_vmm;
		if (attribute == 125)
			*value = !settings.no_ipc && !settings.mig;
	}
	return call_end(&c, r);
}

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDeviceGetPCIBusId, NEED_INIT);

	if (!r)
		r = size >= 13 ? valid(device) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		snprintf(id, (size_t)size, "0000:%02x:00.0", fake.devices[device].physical + 1);
	return call_end(&c, r);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	struct call c;
	CUresult r = call_begin(&c, API_cuDeviceGetByPCIBusId, NEED_INIT);
	unsigned bus = 0;

	if (!r) {
		const char *colon = strchr(id, ':');

		if (!colon || sscanf(colon + 1, "%x", &bus) != 1)
			r = CUDA_ERROR_INVALID_VALUE;
	}
	if (!r) {
		r = CUDA_ERROR_INVALID_DEVICE;
		for (int i = 0; i < fake.n_devices; i++)
			if (fake.devices[i].physical + 1 == (int)bus)
				*device = i, r = CUDA_SUCCESS;
	}
	return call_end(&c, r);
}
