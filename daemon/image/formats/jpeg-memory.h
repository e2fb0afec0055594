/* libjpeg's per-image memory, served from an arena: decoding allocates nothing once the arena has grown. */
#ifndef BATCHD_JPEG_MEMORY_H
#define BATCHD_JPEG_MEMORY_H

#include <stdio.h>

#include <jpeglib.h>

#include "image/formats/arena.h"

struct jvirt_barray_control;

struct jpeg_memory {
	struct arena arena;                        /* of one image */
	struct arena tables;                       /* quantization and Huffman tables */
	struct jvirt_barray_control *coefficients; /* as requested, newest first; in the arena */
	/* libjpeg's own methods, for its other pools. */
	void *(*alloc_large)(j_common_ptr cinfo, int pool, size_t size);
	JSAMPARRAY (*alloc_sarray)(j_common_ptr cinfo, int pool, JDIMENSION n_samples, JDIMENSION n_rows);
	JBLOCKARRAY (*alloc_barray)(j_common_ptr cinfo, int pool, JDIMENSION n_blocks, JDIMENSION n_rows);
	void (*realize_virt_arrays)(j_common_ptr cinfo);
	void (*free_pool)(j_common_ptr cinfo, int pool);
};

/* Call it right after jpeg_create_decompress. From then on cinfo->client_data points to m. m must outlive cinfo. */
void jpeg_memory_install(struct jpeg_memory *m, j_decompress_ptr cinfo);
/* Before each image: tables of the previous image must not serve a file that lacks its own. */
void jpeg_memory_forget_tables(struct jpeg_memory *m, j_decompress_ptr cinfo);
/* After jpeg_destroy_decompress. */
void jpeg_memory_finish(struct jpeg_memory *m);

#endif
