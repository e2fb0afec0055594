/* One scan of a progressive JPEG, ready to be decoded. Private to progressive*.c. */
#ifndef BATCHD_PROGRESSIVE_SCAN_H
#define BATCHD_PROGRESSIVE_SCAN_H

#include "image/jpeg/entropy.h"
#include "image/jpeg/progressive.h"

enum { PROGRESSIVE_AC_BITS = 10 /* of look-ahead */ };

/* A table of AC codes in the form in which scans need it. */
struct ac_table {
	struct {
		int16_t value;
		uint8_t run;    /* zeros before it */
		uint8_t length; /* of code and value; 0: no value, or more bits */
	} fast[1 << PROGRESSIVE_AC_BITS];
	struct {
		uint8_t symbol, length; /* 0: longer */
	} code[1 << PROGRESSIVE_AC_BITS];
	struct huff_codes codes;
};

struct scan_header {
	uint32_t n_components, component[PROGRESSIVE_MAX_COMPONENTS];
	uint32_t dc_table[PROGRESSIVE_MAX_COMPONENTS], ac_table;
	uint32_t from, to, high, low;
};

struct scan_run {
	const struct progressive *p;
	struct cpu_budget *budget;
	uint32_t restart_interval;
	struct scan_header scan;
	const struct huff_dc *dc[PROGRESSIVE_MAX_COMPONENTS];
	struct ac_table *ac;
	struct entropy_state state;
	const uint8_t *interval_end;
	uint32_t end_run; /* blocks that end at once */
};

/* columns: MCUs in a row; needed: rows of them. Returns 0 or SCAN_E_UNSURE. */
typedef int progressive_scan_fn(struct scan_run *r, uint32_t columns, uint32_t needed);
progressive_scan_fn progressive_scan_c;
#if defined(__x86_64__)
progressive_scan_fn progressive_scan_bmi2; /* needs BMI1, BMI2 and AVX2 */
#endif

#endif
