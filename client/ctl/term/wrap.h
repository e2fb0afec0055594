/* Sentences on lines of limited width. */
#ifndef BATCHCTL_WRAP_H
#define BATCHCTL_WRAP_H

#include <stdio.h>

/* Writes the text, which is printable, and a newline. `at` columns of the first line are taken; further lines begin with
 * `indent` spaces. limit: columns of a line; 0: none. Lines break at spaces; a word that is too long for a line stays
 * whole. Returns the number of lines. */
unsigned wrap_put(FILE *f, const char *text, unsigned at, unsigned indent, unsigned limit);

#endif
