/* batchctl sample-data: makes a labelled folder of JPEG files for trials.
 *
 * The same arguments give the same files, so measurements on two machines are about the same work. Each file is written
 * under a temporary name first: an interrupted run leaves no half-written picture behind. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "ctl/command/parallel-for.h"
#include "ctl/ctl.h"
#include "ctl/term/options.h"
#include "ctl/command/synth-image.h"
#include "base/size.h"

struct sample_data {
	const char *dir;
	uint64_t n_classes, per_class, seed, jobs;
	const char *size;
	bool force, json, quiet;

	uint32_t width, height;
	atomic_uint_fast64_t n_bytes;
};

/* A picture's file name, and its name until it is complete. */
struct paths {
	char name[4096], partial[4104];
};

static void *painter_begin(void *arg)
{
	(void)arg;
	return painter_create();
}

static void painter_end(void *arg, void *own)
{
	(void)arg;
	painter_destroy(own);
}

/* libjpeg's own error handler prints and calls exit(), also when memory is short; no other error is possible while
 * writing to memory. */
static void sample_data_compress(const struct synth_image *s, uint8_t **bytes, unsigned long *n_bytes)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;

	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, bytes, n_bytes);
	c.image_width = s->width;
	c.image_height = s->height;
	c.input_components = 3;
	c.in_color_space = JCS_RGB;
	jpeg_set_defaults(&c);
	jpeg_set_quality(&c, s->quality, TRUE);
	jpeg_start_compress(&c, TRUE);
	while (c.next_scanline < c.image_height) {
		JSAMPROW row = s->rgb + (size_t)c.next_scanline * s->width * 3;

		jpeg_write_scanlines(&c, &row, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
}

static int sample_data_write_all(int fd, const uint8_t *bytes, size_t n)
{
	while (n) {
		ssize_t r = write(fd, bytes, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		bytes += r;
		n -= (size_t)r;
	}
	return 0;
}

static int sample_data_save(const struct paths *p, const uint8_t *bytes, size_t n)
{
	int fd = open(p->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	int r;

	if (fd < 0)
		return -errno;
	r = sample_data_write_all(fd, bytes, n);
	if (close(fd) != 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(p->partial, p->name) != 0)
		r = -errno;
	if (r < 0)
		unlink(p->partial);
	return r;
}

static int make_picture(void *arg, void *own, uint64_t i)
{
	struct sample_data *d = arg;
	unsigned c = (unsigned)(i / d->per_class);
	uint64_t number = i % d->per_class;
	struct synth_image image;
	struct paths paths;
	char class[64];
	uint8_t *bytes = NULL;
	unsigned long n_bytes = 0;
	int r = synth_image_paint(own, d->seed, c, number, d->width, d->height, &image);

	if (r < 0)
		return r;
	sample_data_compress(&image, &bytes, &n_bytes);
	synth_image_class_name(c, class, sizeof class);
	snprintf(paths.name, sizeof paths.name, "%s/%s/%05" PRIu64 ".jpg", d->dir, class, number);
	snprintf(paths.partial, sizeof paths.partial, "%s.partial", paths.name);
	r = sample_data_save(&paths, bytes, n_bytes);
	free(bytes);
	if (r < 0)
		ctl_complain("sample-data", "cannot write '%s': %s", paths.name, strerror(-r));
	atomic_fetch_add(&d->n_bytes, n_bytes);
	return r;
}

static bool is_empty(DIR *dir)
{
	for (struct dirent *e; (e = readdir(dir));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			return false;
	return true;
}

static bool sample_data_make_directory(const char *path)
{
	if (mkdir(path, 0777) == 0 || errno == EEXIST)
		return true;
	ctl_complain("sample-data", "cannot make the directory '%s': %s", path, strerror(errno));
	return false;
}

static bool sample_data_prepare(const struct sample_data *d)
{
	char path[4096], class[64];
	bool empty;
	DIR *dir;

	if (strlen(d->dir) > sizeof path - 128) {
		ctl_complain("sample-data", "the directory's name is too long (%zu bytes)", strlen(d->dir));
		return false;
	}
	if (!sample_data_make_directory(d->dir))
		return false;
	dir = opendir(d->dir);
	if (!dir) {
		ctl_complain("sample-data", "cannot open the directory '%s': %s", d->dir, strerror(errno));
		return false;
	}
	empty = is_empty(dir);
	closedir(dir);
	if (!empty && !d->force) {
		ctl_complain("sample-data", "'%s' is not empty; name a new directory, or add --force to write into it",
			     d->dir);
		return false;
	}
	for (unsigned c = 0; c < d->n_classes; c++) {
		synth_image_class_name(c, class, sizeof class);
		snprintf(path, sizeof path, "%s/%s", d->dir, class);
		if (!sample_data_make_directory(path))
			return false;
	}
	return true;
}

static bool parse_size(struct sample_data *d)
{
	char copy[32], *x;
	uint64_t w, h;

	snprintf(copy, sizeof copy, "%s", d->size);
	x = strchr(copy, 'x');
	if (x)
		*x = 0;
	if (!x || strlen(d->size) >= sizeof copy || !options_number(copy, 32, SYNTH_IMAGE_MAX_SIDE_PX / 2, &w) ||
	    !options_number(x + 1, 32, SYNTH_IMAGE_MAX_SIDE_PX / 2, &h)) {
		ctl_complain("sample-data", "--size wants WIDTHxHEIGHT in pixels, each from 32 to %d, not '%s'",
			     SYNTH_IMAGE_MAX_SIDE_PX / 2, d->size);
		return false;
	}
	d->width = (uint32_t)w;
	d->height = (uint32_t)h;
	return true;
}

static int sample_data_report(struct sample_data *d)
{
	uint64_t n = d->n_classes * d->per_class, n_bytes = atomic_load(&d->n_bytes);
	char bytes[32];

	if (d->json)
		return ctl_print_json("sample-data",
				      json_pack("{s:o, s:I, s:I, s:I, s:I}", "directory", ctl_json_text(d->dir),
						"files", (json_int_t)n, "classes", (json_int_t)d->n_classes, "bytes",
						(json_int_t)n_bytes, "seed", (json_int_t)d->seed));
	printf("%s: %" PRIu64 " images in %" PRIu64 " classes, %s\n", d->dir, n, d->n_classes,
	       size_format(n_bytes, bytes, sizeof bytes));
	return ctl_flush("sample-data");
}

int sample_data_main(int argc, char **argv)
{
	struct sample_data d = { .n_classes = 4, .per_class = 50, .size = "500x375", .jobs = ctl_n_cpus() };
	const struct option_spec specs[] = {
		{ "classes", OPTION_NUMBER, &d.n_classes, "N", "classes, 1 to 32", 1, SYNTH_IMAGE_MAX_CLASSES, NULL },
		{ "per-class", OPTION_NUMBER, &d.per_class, "N", "images in each", 1, 100000, NULL },
		{ "seed", OPTION_NUMBER, &d.seed, "N", "another seed, other images", 0, INT64_MAX, NULL },
		{ "size", OPTION_TEXT, &d.size, "WxH", "pixels, around which sizes vary", 0, 0, NULL },
		{ "jobs", OPTION_NUMBER, &d.jobs, "N", "threads (default: one per processor)", 1, 256, NULL },
		{ "force", OPTION_FLAG, &d.force, NULL, "write into a directory that is not empty", 0, 0, NULL },
		{ "json", OPTION_FLAG, &d.json, NULL, "the result, and progress on stderr, as JSON", 0, 0, NULL },
		{ "quiet", OPTION_FLAG, &d.quiet, NULL, "no progress", 0, 0, NULL },
		{ 0 },
	};
	const struct command cmd = {
		"sample-data", "DIR", "Makes a small labelled JPEG folder to try things with.",
		"Then: batchctl verify DIR, batchctl preview DIR --out sheet.png, batchctl bench DIR --private.", 1
	};
	struct progress progress;
	int code, r;

	if (!command_parse(&cmd, specs, argc, argv, &d.dir, &code))
		return code;
	if (!parse_size(&d))
		return CTL_USAGE;
	if (!sample_data_prepare(&d))
		return CTL_FAILED;
	progress_begin(&progress, progress_style_for(d.json, d.quiet), "sample-data", "images",
		       d.n_classes * d.per_class);
	r = parallel_for(&(struct parallel_job){ .n = d.n_classes * d.per_class,
						 .n_threads = (unsigned)d.jobs,
						 .begin = painter_begin,
						 .end = painter_end,
						 .work = make_picture,
						 .arg = &d },
			 &progress);
	progress_end(&progress);
	if (r == -ENOMEM)
		ctl_complain("sample-data", "not enough memory");
	return r < 0 ? CTL_FAILED : sample_data_report(&d);
}
