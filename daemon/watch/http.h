/* An HTTP server for a few readers of this machine: GET only, in a thread of its own, by libmicrohttpd, which is loaded
 * when the server starts.
 *
 * Bounded for peers that mean harm: 16 connections, 16 KiB for each, and from a connection's beginning 2 seconds to the
 * end of its headers and 10 to its own, however slowly it sends or reads. One connection more ends another: the oldest that
 * has sent no request, of the user that has the most. Each answer ends its connection. */
#ifndef BATCHD_HTTP_H
#define BATCHD_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct http;

struct http_answer {
	unsigned status;  /* 200, 404, ... */
	const char *type; /* static */
	char *body;       /* the server frees it; NULL: "" */
	size_t n_bytes;
};

struct http_params {
	int fd;      /* listening; the server closes it */
	bool anyone; /* the Host of a request may be any name; else it is an address or localhost, so that a page of the
	              * web cannot read through a browser on this machine */
	/* The server's thread. path: without the query. uid: of a peer on a Unix socket; else (uid_t)-1. */
	void (*answer)(void *arg, const char *path, uid_t uid, struct http_answer *out);
	void *arg;
};

/* NULL: *why says what is missing; the fd is closed. */
struct http *http_start(const struct http_params *params, const char **why);
/* Ends the thread; an `answer` in progress ends first. */
void http_stop(struct http *h);

#endif
