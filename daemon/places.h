/* Where the daemon keeps what survives it. */
#ifndef BATCHD_PLACES_H
#define BATCHD_PLACES_H

/* Makes the directory (and its parents, 0700) for data set indexes: the configured one, else systemd's $CACHE_DIRECTORY, else $XDG_CACHE_HOME/batchd, else
 * $HOME/.cache/batchd. Fills in buf and returns it; NULL, with a log record, when there is none: indexes are then not kept. */
const char *places_index(const char *configured, char *buf, unsigned long size);

#endif
