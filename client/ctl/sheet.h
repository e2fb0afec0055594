/* A contact sheet: pictures of one size in a grid, with two lines of text under each, written as PNG. */
#ifndef BATCHCTL_SHEET_H
#define BATCHCTL_SHEET_H

#include <stdint.h>

struct sheet;

/* width, height: of one picture, px; small ones are shown enlarged by a whole factor. title: UTF-8. NULL: too large,
 * or memory is short. */
struct sheet *sheet_create(const char *title, uint32_t n, uint32_t columns, uint32_t width, uint32_t height);
void sheet_destroy(struct sheet *s);

/* rgb: width * height pixels, 3 bytes each. */
void sheet_put(struct sheet *s, uint32_t i, const uint8_t *rgb);
/* Why a picture could not be made, in its place. */
void sheet_put_text(struct sheet *s, uint32_t i, const char *text);
/* UTF-8; text that is too long ends in an ellipsis, a character that the font lacks becomes '?'. */
void sheet_caption(struct sheet *s, uint32_t i, const char *first, const char *second);

/* Replaces `path` in one step. 0 or negative errno. */
int sheet_write(const struct sheet *s, const char *path);

#endif
