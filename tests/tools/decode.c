/* Decodes images for the tests in Python, which compare the pixels with Pillow's.
 *
 *   decode [--exif] [--region X,Y,WIDTH,HEIGHT] FILE
 *
 * prints "WIDTH HEIGHT\n" and the raw RGB. Exit code 0, or the outcome (IMAGE_E_...) with its text on stderr.
 *
 *   decode --batch
 *
 * reads requests from standard input, one per line: "EXIF X Y WIDTH HEIGHT PATH" with EXIF 0 or 1 and WIDTH 0 for the
 * whole picture. Answers "0 WIDTH HEIGHT ORIENTATION\n" and the raw RGB, or "OUTCOME TEXT\n". One decoder serves all
 * requests, as a worker does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/formats/decode.h"

struct request {
	const char *path;
	bool apply_exif;
	struct region_px region; /* width 0: everything */
};

static uint8_t *read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes = NULL;

	*n = 0;
	if (!f)
		return NULL;
	for (size_t room = 1 << 16;; room *= 2) {
		uint8_t *more = realloc(bytes, room);

		if (!more)
			break;
		bytes = more;
		*n += fread(bytes + *n, 1, room - *n, f);
		if (*n < room)
			break;
	}
	fclose(f);
	return bytes;
}

/* An exact copy, so that a sanitizer sees any read past the end. */
static int decode(struct decoder *d, const struct request *q, const uint8_t *bytes, size_t n_bytes,
		  struct image_info *info, struct image *out, struct image_error *err)
{
	int outcome = decoder_open(d, bytes, n_bytes, q->apply_exif, info, err);

	if (outcome)
		return outcome;
	struct region_px all = { 0, 0, info->width, info->height };

	return decoder_region(d, q->region.width ? q->region : all, out, err);
}

static void write_rows(const struct image *image)
{
	for (uint32_t y = 0; y < image->height; y++)
		fwrite(image->rgb + y * image->stride_bytes, 3, image->width, stdout);
}

static int answer(struct decoder *d, const struct request *q, bool batch)
{
	struct image_info info;
	struct image image;
	struct image_error err = { "" };
	size_t n_bytes;
	uint8_t *file = read_file(q->path, &n_bytes), *bytes = file ? malloc(n_bytes + !n_bytes) : NULL;
	int outcome = -EIO;

	if (bytes) {
		memcpy(bytes, file, n_bytes);
		outcome = decode(d, q, bytes, n_bytes, &info, &image, &err);
	}
	if (outcome < 0)
		snprintf(err.text, sizeof(err.text), "%s", strerror(-outcome));
	if (outcome && batch)
		printf("%d %s\n", outcome, err.text);
	else if (outcome)
		fprintf(stderr, "decode: %s: %s\n", q->path, err.text);
	else if (batch)
		printf("0 %u %u %d\n", image.width, image.height, info.orientation);
	else
		printf("%u %u\n", image.width, image.height);
	if (outcome == 0)
		write_rows(&image);
	fflush(stdout);
	decoder_close(d);
	free(bytes);
	free(file);
	return outcome;
}

static int serve(struct decoder *d)
{
	char line[4352];

	while (fgets(line, sizeof(line), stdin)) {
		struct request q = { 0 };
		int apply_exif, path_at = 0;

		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "%d %u %u %u %u %n", &apply_exif, &q.region.x, &q.region.y, &q.region.width,
			   &q.region.height, &path_at) != 5 ||
		    !path_at) {
			fprintf(stderr, "decode: bad request: %s\n", line);
			return 2;
		}
		q.apply_exif = apply_exif != 0;
		q.path = line + path_at;
		answer(d, &q, true);
	}
	return 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: decode [--exif] [--region X,Y,WIDTH,HEIGHT] FILE\n       decode --batch\n");
	return 64;
}

int main(int argc, char **argv)
{
	struct decoder *d = decoder_create(&decode_limits_default);
	struct request q = { 0 };
	int code = 0, i = 1;

	if (!d)
		return 70;
	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		if (strcmp(argv[i], "--exif") == 0)
			q.apply_exif = true;
		else if (strcmp(argv[i], "--region") != 0 || i + 1 >= argc ||
			 sscanf(argv[++i], "%u,%u,%u,%u", &q.region.x, &q.region.y, &q.region.width,
				&q.region.height) != 4)
			break;
	}
	if (i == argc - 1 && strcmp(argv[i], "--batch") == 0) {
		code = serve(d);
	} else if (i == argc - 1) {
		q.path = argv[i];
		code = answer(d, &q, false);
		code = code < 0 ? 74 : code;
	} else {
		code = usage();
	}
	decoder_destroy(d);
	return code;
}
