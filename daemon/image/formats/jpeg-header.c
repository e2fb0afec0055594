/* The segments before the first scan.
 *
 * libjpeg reads them too, later. This file reads them first, for two reasons. A file is accepted here exactly when
 * Pillow accepts it: Pillow reads the segments itself, is stricter in places (a broken Photoshop or Adobe segment is
 * fatal, as are two-layer files), and is the only one of the two that knows EXIF. And the size must be known before
 * libjpeg sees the file. */
#include "image/formats/jpeg-header.h"

#include <errno.h>
#include <string.h>

#include "image/formats/exif.h"

enum { ICC_HEADER = 14, PHOTOSHOP_HEADER = 14, RESOLUTION_INFO = 0x03ed };

static const char xmp_name[] = "http://ns.adobe.com/xap/1.0/"; /* and its zero byte */

/* State of one pass over the segments. It has offsets instead of pointers, so that all are checked against the same
 * end. */
struct walk {
	const uint8_t *bytes;
	size_t n_bytes, at;
	struct jpeg_header *header;
	struct scratch *joined;
	const uint8_t *exif; /* points into bytes, or into joined after a second part */
	size_t n_exif;
	const uint8_t *xmp;
	size_t n_xmp;
	struct image_error *err;
};

static uint32_t jpeg_header_get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint64_t jpeg_header_get32(const uint8_t *p)
{
	return (uint64_t)jpeg_header_get16(p) << 16 | jpeg_header_get16(p + 2);
}

static bool starts_with(const uint8_t *s, size_t n, const char *name, size_t n_name)
{
	return n >= n_name && memcmp(s, name, n_name) == 0;
}

static int jpeg_header_damaged(struct walk *w, const char *what)
{
	return image_fail(w->err, IMAGE_E_CORRUPT, "damaged JPEG: bad %s segment", what);
}

static int add_exif(struct walk *w, const uint8_t *s, size_t n)
{
	if (!w->exif) {
		w->exif = s;
		w->n_exif = n;
		return 0;
	}

	/* Later parts are appended without their prefix. Growing loses the contents, so there is room for the whole
	 * file from the start. */
	if (w->exif != w->joined->data) {
		uint8_t *room = scratch_reserve(w->joined, w->n_bytes);

		if (!room)
			return -ENOMEM;
		memcpy(room, w->exif, w->n_exif);
		w->exif = room;
	}
	memcpy(w->joined->data + w->n_exif, s + 6, n - 6);
	w->n_exif += n - 6;
	return 0;
}

/* Photoshop's resource blocks: Pillow fails if a block ends exactly at the segment's end although it claims more. */
static int check_photoshop(struct walk *w, const uint8_t *s, size_t n)
{
	size_t at = PHOTOSHOP_HEADER;

	while (at + 4 <= n && memcmp(s + at, "8BIM", 4) == 0) {
		at += 4;
		if (n - at < 2)
			return 0;
		uint32_t code = jpeg_header_get16(s + at);

		at += 2;
		if (at >= n)
			return jpeg_header_damaged(w, "Photoshop");
		at += 1 + (size_t)s[at];
		at += at & 1;
		if (at > n || n - at < 4)
			return 0;
		uint64_t size = jpeg_header_get32(s + at);

		at += 4;
		if (code == RESOLUTION_INFO && (size < 14 || n - at < 14))
			return 0;
		if (size > n - at)
			return 0;
		at += size;
		at += at & 1;
	}
	return 0;
}

static int read_app(struct walk *w, uint8_t marker, const uint8_t *s, size_t n)
{
	switch (marker) {
	case 0xe0:
		return starts_with(s, n, "JFIF", 4) && n < 7 ? jpeg_header_damaged(w, "JFIF") : 0;
	case 0xe1:
		if (starts_with(s, n, "Exif\0", 6))
			return add_exif(w, s, n);
		if (starts_with(s, n, xmp_name, sizeof(xmp_name))) {
			w->xmp = s + sizeof(xmp_name);
			w->n_xmp = n - sizeof(xmp_name);
		}
		return 0;
	case 0xed:
		return starts_with(s, n, "Photoshop 3.0", PHOTOSHOP_HEADER) ? check_photoshop(w, s, n) : 0;
	case 0xee:
		return starts_with(s, n, "Adobe", 5) && n < 7 ? jpeg_header_damaged(w, "Adobe") : 0;
	default:
		return 0;
	}
}

static int jpeg_header_read_frame(struct walk *w, const uint8_t *s, size_t n)
{
	struct jpeg_header *h = w->header;

	if (n < 6 || n % 3 != 0)
		return jpeg_header_damaged(w, "frame");
	if (s[0] != 8)
		return image_fail(w->err, IMAGE_E_FORMAT, "a JPEG of %u bits per sample; 8 are read", s[0]);
	h->height = jpeg_header_get16(s + 1);
	h->width = jpeg_header_get16(s + 3);
	h->n_layers = s[5];
	if (h->n_layers != 1 && h->n_layers != 3 && h->n_layers != 4)
		return image_fail(w->err, IMAGE_E_FORMAT, "a JPEG of %d layers; 1, 3 or 4 are read", h->n_layers);
	return 0;
}

static int check_tables(struct walk *w, const uint8_t *s, size_t n)
{
	while (n > 0) {
		size_t size = 1 + 64 * (size_t)(s[0] >> 4 ? 2 : 1);

		if (n < size)
			return jpeg_header_damaged(w, "quantization table");
		s += size;
		n -= size;
	}
	return 0;
}

static bool is_frame(uint8_t marker)
{
	return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* Markers without a length. */
static bool is_bare(uint8_t marker)
{
	return marker == 0xc8 || (marker >= 0xd0 && marker <= 0xd9) || (marker >= 0xf0 && marker <= 0xfd);
}

/* w->at is after the marker. */
static int read_segment(struct walk *w, uint8_t marker)
{
	if (w->n_bytes - w->at < 2)
		return image_fail(w->err, IMAGE_E_CORRUPT, "JPEG cut short in its header");
	uint32_t length = jpeg_header_get16(w->bytes + w->at);
	size_t n = length > 2 ? length - 2 : 0;

	w->at += 2;
	if (n > w->n_bytes - w->at)
		return image_fail(w->err, IMAGE_E_CORRUPT, "JPEG cut short in its header");
	const uint8_t *s = w->bytes + w->at;

	w->at += n;
	if (is_frame(marker) || marker == 0xde)
		return jpeg_header_read_frame(w, s, n);
	if (marker == 0xdb)
		return check_tables(w, s, n);
	if (marker >= 0xe0 && marker <= 0xef)
		return read_app(w, marker, s, n);
	return 0;
}

/* Moves to the byte after the next marker and returns the marker; 0 at the end of the bytes. Skips junk between
 * segments. */
static uint8_t next_marker(struct walk *w)
{
	while (w->at + 1 < w->n_bytes) {
		if (w->bytes[w->at] != 0xff) {
			w->at++;
			continue;
		}
		uint8_t marker = w->bytes[w->at + 1];

		if (marker == 0xff) {
			w->at++; /* fill byte */
			continue;
		}
		w->at += 2;
		if (marker != 0)
			return marker;
	}
	return 0;
}

static int walk_to_scan(struct walk *w)
{
	for (;;) {
		uint8_t marker = next_marker(w);

		if (marker == 0)
			return image_fail(w->err, IMAGE_E_CORRUPT, "JPEG without image data");
		if (marker < 0xc0 || marker == 0xff)
			return image_fail(w->err, IMAGE_E_CORRUPT, "damaged JPEG: unknown marker 0x%02x", marker);
		if (is_bare(marker))
			continue;
		int r = read_segment(w, marker);

		if (r)
			return r;
		if (marker == 0xda)
			return 0;
	}
}

static int jpeg_header_orientation_of(const struct walk *w)
{
	int o = w->exif ? exif_orientation(w->exif, w->n_exif) : 0;

	if (o == 0 && w->xmp)
		o = xmp_orientation(w->xmp, w->n_xmp);
	return o ? o : 1;
}

int jpeg_header_read(const uint8_t *bytes, size_t n_bytes, struct scratch *joined, struct jpeg_header *header,
		     struct image_error *err)
{
	struct walk w = { .bytes = bytes, .n_bytes = n_bytes, .at = 2, .header = header, .joined = joined, .err = err };

	*header = (struct jpeg_header){ 0 };
	int r = walk_to_scan(&w);
	if (r)
		return r;
	if (header->width == 0 || header->height == 0)
		return image_fail(err, IMAGE_E_CORRUPT, "damaged JPEG: size %ux%u", header->width, header->height);
	header->scan_offset = w.at;
	header->orientation = jpeg_header_orientation_of(&w);
	return 0;
}

bool jpeg_tail_is_plain(const uint8_t *p, const uint8_t *end)
{
	while (p < end && (p = memchr(p, 0xff, (size_t)(end - p))) && p + 1 < end) {
		if (p[1] == 0xd9)
			return true;
		if (p[1] == 0xff)
			p += 1;
		else if (p[1] == 0 || (p[1] >= 0xd0 && p[1] <= 0xd7))
			p += 2;
		else
			return false;
	}
	return false;
}
