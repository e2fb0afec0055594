/* The limit: libjpeg-turbo alone, without reading files, resampling, or anything else.
 *
 *     limit THREADS REPEATS <LIST         LIST: lines "X Y WIDTH HEIGHT PATH", pixels; WIDTH 0: the whole picture
 *
 * Decodes with the accurate DCT and fancy upsampling, as Pillow does. A rectangle is decoded as the library allows:
 * columns cropped to whole blocks, rows above it skipped, nothing read below it. Files are read into memory first.
 * Prints {"images", "wall_s", "cpu_s"}. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

struct item {
	unsigned x, y, width, height;
	uint8_t *bytes;
	size_t n_bytes;
};

struct work {
	struct item *items;
	size_t n_items, n_todo; /* n_todo: n_items times REPEATS */
	atomic_size_t next;
};

static void read_file(struct item *i, const char *path)
{
	FILE *f = fopen(path, "rb");

	if (!f || fseek(f, 0, SEEK_END) < 0) {
		perror(path);
		exit(1);
	}
	i->n_bytes = (size_t)ftell(f);
	i->bytes = malloc(i->n_bytes);
	rewind(f);
	if (!i->bytes || fread(i->bytes, 1, i->n_bytes, f) != i->n_bytes) {
		perror(path);
		exit(1);
	}
	fclose(f);
}

static void read_list(struct work *w)
{
	char line[8192];

	while (fgets(line, sizeof line, stdin)) {
		struct item i;
		int path;

		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "%u %u %u %u %n", &i.x, &i.y, &i.width, &i.height, &path) != 4) {
			fprintf(stderr, "limit: expected X Y WIDTH HEIGHT PATH, not '%s'\n", line);
			exit(1);
		}
		read_file(&i, line + path);
		w->items = realloc(w->items, (w->n_items + 1) * sizeof i);
		if (!w->items)
			exit(1);
		w->items[w->n_items++] = i;
	}
}

/* row: room for any row of any of the pictures. */
static void decode(struct jpeg_decompress_struct *d, const struct item *i, uint8_t **row, size_t *row_bytes)
{
	unsigned end;

	jpeg_mem_src(d, i->bytes, (unsigned long)i->n_bytes);
	jpeg_read_header(d, TRUE);
	d->out_color_space = d->num_components == 4 ? JCS_CMYK : JCS_RGB;
	jpeg_start_decompress(d);
	if (*row_bytes < (size_t)d->output_width * 4) {
		*row_bytes = (size_t)d->output_width * 4;
		free(*row);
		*row = malloc(*row_bytes);
		if (!*row)
			exit(1);
	}
	end = d->output_height;
	if (i->width) {
		JDIMENSION x = i->x, width = i->width;

		jpeg_crop_scanline(d, &x, &width);
		jpeg_skip_scanlines(d, i->y);
		end = i->y + i->height;
	}
	while (d->output_scanline < end)
		jpeg_read_scanlines(d, row, 1);
	jpeg_abort_decompress(d);
}

static void *decoder(void *arg)
{
	struct work *w = arg;
	struct jpeg_decompress_struct d;
	struct jpeg_error_mgr errors;
	uint8_t *row = NULL;
	size_t row_bytes = 0, n;

	d.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&d);
	while ((n = atomic_fetch_add(&w->next, 1)) < w->n_todo)
		decode(&d, &w->items[n % w->n_items], &row, &row_bytes);
	jpeg_destroy_decompress(&d);
	free(row);
	return NULL;
}

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct work w = { 0 };
	pthread_t threads[256];
	long n_threads = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
	double wall, cpu;

	if (n_threads < 1 || n_threads > 256) {
		fprintf(stderr, "usage: limit THREADS REPEATS <LIST\n");
		return 64;
	}
	read_list(&w);
	w.n_todo = w.n_items * strtoul(argv[2], NULL, 10);
	wall = seconds(CLOCK_MONOTONIC);
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	for (long i = 0; i < n_threads; i++)
		if (pthread_create(&threads[i], NULL, decoder, &w) != 0)
			return 1;
	for (long i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
	printf("{\"images\": %zu, \"wall_s\": %.6f, \"cpu_s\": %.6f}\n", w.n_todo, seconds(CLOCK_MONOTONIC) - wall,
	       seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	for (size_t i = 0; i < w.n_items; i++)
		free(w.items[i].bytes);
	free(w.items);
	return 0;
}
