/* A contact sheet: pictures of one size in a grid, with two lines of text under each, written as PNG. */
#ifndef BATCHCTL_CONTACT_SHEET_H
#define BATCHCTL_CONTACT_SHEET_H

#include <stdint.h>

struct contact_sheet;

/* width, height: of one picture, px; small ones are shown enlarged by a whole factor. title: UTF-8. NULL: too large,
 * or memory is short. */
struct contact_sheet *contact_sheet_create(const char *title, uint32_t n, uint32_t columns, uint32_t width,
					   uint32_t height);
void contact_sheet_destroy(struct contact_sheet *s);

/* rgb: width * height pixels, 3 bytes each. */
void contact_sheet_put(struct contact_sheet *s, uint32_t i, const uint8_t *rgb);
/* Why a picture could not be made, in its place. */
void contact_sheet_put_text(struct contact_sheet *s, uint32_t i, const char *text);
/* UTF-8; text that is too long ends in an ellipsis, a character that the font lacks becomes '?'. */
void contact_sheet_caption(struct contact_sheet *s, uint32_t i, const char *first, const char *second);

/* Replaces `path` in one step. 0 or negative errno. */
int contact_sheet_write(const struct contact_sheet *s, const char *path);

#endif
