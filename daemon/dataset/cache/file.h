/* The file that keeps a data set's indexes over restarts: records in a row, each with checksums. */
#ifndef BATCHD_CACHE_FILE_H
#define BATCHD_CACHE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CACHE_FILE_HEADER_BYTES = 64, CACHE_RECORD_HEADER_BYTES = 64, CACHE_RECORD_MAX_BYTES = 16 << 20 };

struct cache_record {
	uint64_t index;                                 /* of the sample */
	uint64_t mtime_ns, ctime_ns, ino, n_file_bytes; /* identity of the file behind the payload; without the device,
	                                                 * whose number may change with a restart */
	const void *payload; /* 8-byte aligned if the bytes given to the parser are; NULL: damaged */
	size_t n_payload;    /* 1 .. CACHE_RECORD_MAX_BYTES */
};

/* From bytes, without I/O. The first bytes of a file: 0 or -EINVAL (damaged, foreign, another version or data set). */
int cache_file_check_header(const void *bytes, size_t n_bytes, uint64_t dataset_id);
void cache_file_make_header(unsigned char header[CACHE_FILE_HEADER_BYTES], uint64_t dataset_id);

/* The record at the beginning of these bytes: its size in the file, 0 if more bytes are needed, -EINVAL if no record
 * begins here (try 8 bytes further). */
ssize_t cache_record_parse(const void *bytes, size_t n_bytes, struct cache_record *out);
/* The record's size in the file: header and padded payload. */
size_t cache_record_bytes(size_t n_payload);
/* Writes that many bytes to `out`. */
void cache_record_make(unsigned char *out, const struct cache_record *r);

/* An open file. Only the first opener writes; other openers, in this process or another, only read. */
struct cache_file {
	int fd; /* -1: none */
	int writable;
	uint64_t dataset_id;
	uint64_t size_bytes; /* up to the end of the last record */
	char path[512];
};

/* Opens or makes dir/index-<dataset id>.cache. A foreign file, a file of more than most_bytes and one that is nearly
 * all holes are started again; another user's file is left alone, as its indexes would give other pixels (-EPERM). 0 or
 * negative errno; then no file is open. */
int cache_file_open(struct cache_file *f, const char *dir, uint64_t dataset_id, uint64_t most_bytes);
void cache_file_close(struct cache_file *f);
/* Calls fn for every sound record in the order of the file; stops when fn returns non-zero. Skips damaged bytes, up to
 * a limit after which they count as the end. Cuts a damaged end off. 0 or negative errno. */
int cache_file_read(struct cache_file *f, int (*fn)(void *arg, const struct cache_record *r), void *arg);
/* Appends whole records. 0 or negative errno; then the file ends as before. */
int cache_file_append(struct cache_file *f, const void *records, size_t n_bytes);
/* Begins a new file beside the old one. The caller appends to it and finishes with cache_file_replace, which puts it in
 * the old file's place. */
int cache_file_begin_new(const struct cache_file *old, struct cache_file *fresh);
int cache_file_replace(struct cache_file *old, struct cache_file *fresh);
/* Removes the new file instead. */
void cache_file_abandon(struct cache_file *fresh);

#endif
