/* File names as Python sees and sorts them. */
#ifndef BATCHD_NAME_H
#define BATCHD_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* <0, 0, >0: the order of Python's sorted() over os.fsdecode'd names, which is by code point; bytes that are not UTF-8
 * count as U+DC80..U+DCFF. */
int name_compare(const char *a, const char *b);
/* Whether n bytes, which a zero byte follows, are valid UTF-8. */
bool name_is_utf8(const char *text, size_t n);
/* Whether torchvision.datasets.ImageFolder accepts it as an image. */
bool name_is_image(const char *name);
/* The extensions as torchvision lists them in its messages. */
#define NAME_IMAGE_EXTENSIONS ".jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp"

#endif
