/* What the header says of a picture: its shape, whether this decoder handles it, and the name of its data. */
#include <string.h>
#include <xxhash.h>

#include "image/jpeg/scan-impl.h"

enum { MAX_DIMENSION = 65500 };

bool scan_shape(const struct jpeg_decompress_struct *c, struct shape *out)
{
	const jpeg_component_info *k = c->comp_info;
	struct shape s = {
		.width = c->image_width,
		.height = c->image_height,
		.n_components = (uint32_t)c->num_components,
		.h = 1,
		.v = 1,
		.n_luma = 1,
		.restart_interval = c->restart_interval,
		.is_ycc = c->jpeg_color_space == JCS_YCbCr,
	};

	if (s.width == 0 || s.height == 0 || s.width > MAX_DIMENSION || s.height > MAX_DIMENSION)
		return false;
	if (s.n_components == 3) {
		if (k[1].h_samp_factor != 1 || k[1].v_samp_factor != 1 || k[2].h_samp_factor != 1 ||
		    k[2].v_samp_factor != 1)
			return false;
		s.h = (uint32_t)k[0].h_samp_factor;
		s.v = (uint32_t)k[0].v_samp_factor;
		if (s.h < 1 || s.h > 2 || s.v < 1 || s.v > 2)
			return false;
		if (!s.is_ycc && (c->jpeg_color_space != JCS_RGB || s.h * s.v != 1))
			return false;
	} else if (s.n_components != 1 || c->jpeg_color_space != JCS_GRAYSCALE) {
		return false;
	}
	s.n_luma = s.h * s.v;
	s.mcus_per_row = (s.width + 8 * s.h - 1) / (8 * s.h);
	s.mcu_rows = (s.height + 8 * s.v - 1) / (8 * s.v);
	s.chroma_width = (s.width + s.h - 1) / s.h;
	s.chroma_height = (s.height + s.v - 1) / s.v;
	*out = s;
	return s.h == 1 || s.chroma_width > 2; /* libjpeg upsamples narrower images in another way */
}

bool scan_supported(const struct jpeg_decompress_struct *c)
{
	struct shape s;

	if (c->progressive_mode || c->arith_code || c->data_precision != 8 || c->comps_in_scan != c->num_components ||
	    c->Ss != 0 || c->Se != DCTSIZE2 - 1 || c->Ah != 0 || c->Al != 0 || !scan_shape(c, &s))
		return false;
	for (int i = 0; i < c->num_components; i++) {
		const jpeg_component_info *k = &c->comp_info[i];

		if (c->cur_comp_info[i] != k || k->quant_tbl_no < 0 || k->quant_tbl_no >= NUM_QUANT_TBLS ||
		    k->dc_tbl_no < 0 || k->dc_tbl_no >= NUM_HUFF_TBLS || k->ac_tbl_no < 0 ||
		    k->ac_tbl_no >= NUM_HUFF_TBLS)
			return false;
		if (!c->quant_tbl_ptrs[k->quant_tbl_no] || !c->dc_huff_tbl_ptrs[k->dc_tbl_no] ||
		    !c->ac_huff_tbl_ptrs[k->ac_tbl_no])
			return false;
	}
	return true;
}

size_t checkpoints_size(const struct jpeg_decompress_struct *c, size_t n)
{
	struct shape s;

	return scan_shape(c, &s) ? checkpoints_bytes(s.mcus_per_row, s.mcu_rows, n) : 0;
}

void checkpoints_init(struct checkpoints *x, const struct jpeg_decompress_struct *c, size_t n, uint64_t id)
{
	struct shape s;

	if (scan_shape(c, &s))
		checkpoints_clear(x, s.mcus_per_row, s.mcu_rows, n, id);
}

/* What data mean depends on. */
struct shape_key {
	uint32_t size[2], sampling[2], n_components, restart_interval;
};

struct table_key {
	UINT8 dc_bits[17], dc_values[256], ac_bits[17], ac_values[256];
};

static struct shape_key key_of_shape(const struct shape *s)
{
	return (struct shape_key){ { s->width, s->height }, { s->h, s->v }, s->n_components, s->restart_interval };
}

static void note_tables(const JHUFF_TBL *dc, const JHUFF_TBL *ac, struct table_key *key)
{
	if (dc) {
		memcpy(key->dc_bits, dc->bits, sizeof(dc->bits));
		memcpy(key->dc_values, dc->huffval, sizeof(dc->huffval));
	}
	if (ac) {
		memcpy(key->ac_bits, ac->bits, sizeof(ac->bits));
		memcpy(key->ac_values, ac->huffval, sizeof(ac->huffval));
	}
}

/* Other tables with the same data lead to other states; another quantization does not. */
uint64_t scan_id(const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n)
{
	struct {
		struct shape_key shape;
		struct table_key tables[3];
	} key;
	struct shape s;

	if (!scan_supported(c) || !scan_shape(c, &s))
		return 0;
	memset(&key, 0, sizeof(key));
	key.shape = key_of_shape(&s);
	for (uint32_t i = 0; i < s.n_components; i++)
		note_tables(c->dc_huff_tbl_ptrs[c->comp_info[i].dc_tbl_no],
			    c->ac_huff_tbl_ptrs[c->comp_info[i].ac_tbl_no], &key.tables[i]);
	return XXH3_64bits_withSeed(data, n, XXH3_64bits(&key, sizeof(key)));
}

bool scan_supported_progressive(const struct jpeg_decompress_struct *c)
{
	struct shape s;

	if (!c->progressive_mode || c->arith_code || c->data_precision != 8 || !scan_shape(c, &s))
		return false;
	for (int i = 0; i < c->num_components; i++) {
		int table = c->comp_info[i].quant_tbl_no;

		if (table < 0 || table >= NUM_QUANT_TBLS || !c->quant_tbl_ptrs[table])
			return false;
	}
	return true;
}

/* Later scans name components by their ids and may use every table that is defined before the first one. */
uint64_t scan_progressive_id(const struct jpeg_decompress_struct *c, const uint8_t *data, size_t n)
{
	struct {
		struct shape_key shape;
		uint32_t ids[3], first_scan[5];
		struct {
			uint32_t component, dc_table, ac_table;
		} in_scan[3];
		struct table_key tables[NUM_HUFF_TBLS];
	} key;
	struct shape s;

	if (!scan_supported_progressive(c) || !scan_shape(c, &s) || c->comps_in_scan > c->num_components)
		return 0;
	memset(&key, 0, sizeof(key));
	key.shape = key_of_shape(&s);
	const int first[] = { c->comps_in_scan, c->Ss, c->Se, c->Ah, c->Al };
	for (uint32_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
		key.first_scan[i] = (uint32_t)first[i];
	for (int i = 0; i < c->num_components; i++)
		key.ids[i] = (uint32_t)c->comp_info[i].component_id;
	for (int i = 0; i < c->comps_in_scan; i++) {
		const jpeg_component_info *k = c->cur_comp_info[i];

		key.in_scan[i].component = (uint32_t)k->component_index;
		key.in_scan[i].dc_table = (uint32_t)k->dc_tbl_no;
		key.in_scan[i].ac_table = (uint32_t)k->ac_tbl_no;
	}
	for (int i = 0; i < NUM_HUFF_TBLS; i++)
		note_tables(c->dc_huff_tbl_ptrs[i], c->ac_huff_tbl_ptrs[i], &key.tables[i]);
	return XXH3_64bits_withSeed(data, n, XXH3_64bits(&key, sizeof(key)));
}
