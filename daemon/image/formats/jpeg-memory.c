/* libjpeg asks for memory through a table of methods in cinfo->mem. This file replaces the methods that serve one image
 * (JPOOL_IMAGE).
 *
 * After the decompressor is created, its only permanent requests are for quantization and Huffman tables. It keeps
 * those from image to image, so a file without tables would be decoded with the tables of an earlier file. A sample
 * must depend only on its own file, so the tables live in a separate arena, which jpeg_memory_forget_tables empties.
 * The image's arena cannot hold them, because libjpeg frees that between a stream with tables only and the picture
 * after it.
 *
 * This is not for speed: with libjpeg's own methods and a new decompressor for each image, which forgets the tables as
 * well, decoding takes less than 1 % more processor time. It is for a worker that allocates nothing once it is warm,
 * and for one limit on all that libjpeg takes.
 *
 * A special case: libjpeg's "virtual arrays" (the coefficients of a whole progressive image) are opaque and designed to
 * swap to disk, which no build since the nineties does. Here they are plain arrays, limited by the arena. The variant
 * for samples serves only colour quantization, which is never requested here, and stays libjpeg's. */
#include "image/formats/jpeg-memory.h"

#include <string.h>

#include <jerror.h>

/* libjpeg's SIMD code needs rows that start on 32 bytes and may read up to the next 64. */
enum { ROW_ALIGN = 64, KEEP_BYTES = 32 << 20 };

struct jvirt_barray_control {
	struct jvirt_barray_control *next;
	JBLOCKARRAY rows; /* NULL until realized */
	JDIMENSION n_blocks, n_rows;
	boolean zeroed;
};

static struct jpeg_memory *jpeg_memory_memory_of(j_common_ptr cinfo)
{
	return cinfo->client_data;
}

static void *take_from(j_common_ptr cinfo, struct arena *arena, size_t size)
{
	void *p = arena_take(arena, size);

	if (!p)
		ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 0);
	return p;
}

static void *jpeg_memory_take(j_common_ptr cinfo, size_t size)
{
	return take_from(cinfo, &jpeg_memory_memory_of(cinfo)->arena, size);
}

static void *alloc_small(j_common_ptr cinfo, int pool, size_t size)
{
	struct jpeg_memory *m = jpeg_memory_memory_of(cinfo);

	return take_from(cinfo, pool == JPOOL_IMAGE ? &m->arena : &m->tables, size);
}

static void *alloc_large(j_common_ptr cinfo, int pool, size_t size)
{
	return pool == JPOOL_IMAGE ? jpeg_memory_take(cinfo, size)
				   : jpeg_memory_memory_of(cinfo)->alloc_large(cinfo, pool, size);
}

static JSAMPARRAY alloc_sarray(j_common_ptr cinfo, int pool, JDIMENSION n_samples, JDIMENSION n_rows)
{
	if (pool != JPOOL_IMAGE)
		return jpeg_memory_memory_of(cinfo)->alloc_sarray(cinfo, pool, n_samples, n_rows);

	size_t stride = ((size_t)n_samples + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
	JSAMPARRAY rows = jpeg_memory_take(cinfo, n_rows * sizeof(*rows));
	JSAMPROW samples = jpeg_memory_take(cinfo, n_rows * stride + ROW_ALIGN);

	for (JDIMENSION i = 0; i < n_rows; i++)
		rows[i] = samples + i * stride;
	return rows;
}

static JBLOCKARRAY alloc_barray(j_common_ptr cinfo, int pool, JDIMENSION n_blocks, JDIMENSION n_rows)
{
	if (pool != JPOOL_IMAGE)
		return jpeg_memory_memory_of(cinfo)->alloc_barray(cinfo, pool, n_blocks, n_rows);

	JBLOCKARRAY rows = jpeg_memory_take(cinfo, n_rows * sizeof(*rows));
	JBLOCKROW blocks = jpeg_memory_take(cinfo, (size_t)n_rows * n_blocks * sizeof(*blocks));

	for (JDIMENSION i = 0; i < n_rows; i++)
		rows[i] = blocks + (size_t)i * n_blocks;
	return rows;
}

static jvirt_barray_ptr request_virt_barray(j_common_ptr cinfo, int pool, boolean zeroed, JDIMENSION n_blocks,
					    JDIMENSION n_rows, JDIMENSION max_access)
{
	struct jpeg_memory *m = jpeg_memory_memory_of(cinfo);
	struct jvirt_barray_control *v;

	(void)max_access; /* all rows are always in memory */
	if (pool != JPOOL_IMAGE)
		ERREXIT1(cinfo, JERR_BAD_POOL_ID, pool);
	v = jpeg_memory_take(cinfo, sizeof(*v));
	*v = (struct jvirt_barray_control){ m->coefficients, NULL, n_blocks, n_rows, zeroed };
	m->coefficients = v;
	return v;
}

static void realize_virt_arrays(j_common_ptr cinfo)
{
	struct jpeg_memory *m = jpeg_memory_memory_of(cinfo);

	for (struct jvirt_barray_control *v = m->coefficients; v; v = v->next) {
		if (v->rows)
			continue;
		v->rows = alloc_barray(cinfo, JPOOL_IMAGE, v->n_blocks, v->n_rows);
		if (v->zeroed)
			memset(v->rows[0], 0, (size_t)v->n_rows * v->n_blocks * sizeof(JBLOCK));
	}
	m->realize_virt_arrays(cinfo);
}

static JBLOCKARRAY access_virt_barray(j_common_ptr cinfo, jvirt_barray_ptr v, JDIMENSION start, JDIMENSION n_rows,
				      boolean writable)
{
	(void)writable;
	if (!v->rows || n_rows > v->n_rows || start > v->n_rows - n_rows)
		ERREXIT(cinfo, JERR_BAD_VIRTUAL_ACCESS);
	return v->rows + start;
}

static void jpeg_memory_free_pool(j_common_ptr cinfo, int pool)
{
	struct jpeg_memory *m = jpeg_memory_memory_of(cinfo);

	m->free_pool(cinfo, pool);
	if (pool == JPOOL_IMAGE) {
		arena_reset(&m->arena, KEEP_BYTES);
		m->coefficients = NULL;
	}
}

void jpeg_memory_install(struct jpeg_memory *m, j_decompress_ptr cinfo)
{
	struct jpeg_memory_mgr *mem = cinfo->mem;

	m->alloc_large = mem->alloc_large;
	m->alloc_sarray = mem->alloc_sarray;
	m->alloc_barray = mem->alloc_barray;
	m->realize_virt_arrays = mem->realize_virt_arrays;
	m->free_pool = mem->free_pool;
	cinfo->client_data = m;
	mem->alloc_small = alloc_small;
	mem->alloc_large = alloc_large;
	mem->alloc_sarray = alloc_sarray;
	mem->alloc_barray = alloc_barray;
	mem->request_virt_barray = request_virt_barray;
	mem->realize_virt_arrays = realize_virt_arrays;
	mem->access_virt_barray = access_virt_barray;
	mem->free_pool = jpeg_memory_free_pool;
}

void jpeg_memory_forget_tables(struct jpeg_memory *m, j_decompress_ptr cinfo)
{
	for (int i = 0; i < NUM_QUANT_TBLS; i++)
		cinfo->quant_tbl_ptrs[i] = NULL;
	for (int i = 0; i < NUM_HUFF_TBLS; i++)
		cinfo->dc_huff_tbl_ptrs[i] = cinfo->ac_huff_tbl_ptrs[i] = NULL;
	arena_reset(&m->tables, KEEP_BYTES);
}

void jpeg_memory_finish(struct jpeg_memory *m)
{
	arena_finish(&m->arena);
	arena_finish(&m->tables);
}
