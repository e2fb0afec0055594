/* Where the entropy decoder's state is in the stream, and how it gets to an MCU: by restart intervals, by an index of
 * states, or by skipping; on its way it records states. */
#include <string.h>

#include "image/jpeg/scan-impl.h"

static uint32_t interval_of(const struct scan *s, uint32_t mcu)
{
	return s->shape.restart_interval ? mcu / s->shape.restart_interval : 0;
}

/* Bits of the present interval that are after the state; negative: it has read too far. */
int64_t scan_bits_left(const struct scan *s)
{
	return (s->interval_end - s->state.next) * 8 + (int64_t)s->state.n_bits;
}

/* Finds the first state to record from `mcu` on. */
static void plan_record(struct scan *s, uint32_t mcu)
{
	const uint32_t per_row = s->shape.mcus_per_row;
	uint32_t row = mcu / per_row, column = mcu % per_row, step, per_row_states;

	s->next_record = UINT32_MAX;
	if (!s->record)
		return;
	step = s->record->mcu_step;
	per_row_states = checkpoints_states_per_row(s->record);
	s->next_state = row * per_row_states + (column + step - 1) / step;
	column = (column + step - 1) / step * step;
	s->next_row = (row + 1) * per_row;
	s->next_record = row * per_row + column;
	if (column >= per_row) {
		s->next_record = s->next_row;
		s->next_row += per_row;
	}
}

void scan_stand_at(struct scan *s, uint32_t mcu, uint64_t bit, const int32_t dc[3])
{
	uint32_t interval = interval_of(s, mcu);

	s->at = s->stop = mcu;
	s->next_restart = s->shape.restart_interval ? interval * s->shape.restart_interval : UINT32_MAX;
	if (s->next_restart < mcu)
		s->next_restart += s->shape.restart_interval;
	s->interval_end = s->stream.data + s->interval_starts[interval + 1];
	entropy_seek(&s->state, s->stream.data, bit);
	memcpy(s->state.dc, dc, sizeof(s->state.dc));
	plan_record(s, mcu);
}

static void stand_at_interval(struct scan *s, uint32_t interval)
{
	scan_stand_at(s, interval * s->shape.restart_interval, (uint64_t)s->interval_starts[interval] * 8,
		      (const int32_t[3]){ 0 });
}

/* The state has reached s->stop: passes a restart marker, records the state, finds the next stop. */
int scan_arrive(struct scan *s)
{
	if (s->at == s->next_restart) {
		uint32_t interval = s->at / s->shape.restart_interval;

		if (s->interval_end == s->stream.data + s->interval_starts[interval] && scan_bits_left(s) > 7)
			return SCAN_E_UNSURE; /* reached from the previous interval, which has bits left */
		stand_at_interval(s, interval);
		s->next_restart += s->shape.restart_interval;
	}
	if (s->at == s->next_record) {
		checkpoints_put(s->record, s->next_state++, entropy_tell(&s->state, s->stream.data), s->state.dc);
		s->next_record += s->record->mcu_step;
		if (s->next_record >= s->next_row) {
			s->next_record = s->next_row;
			s->next_row += s->shape.mcus_per_row;
		}
	}
	s->stop = s->next_restart < s->next_record ? s->next_restart : s->next_record;
	return 0;
}

/* Goes to the last known state of the index at or before `mcu`, if it is ahead of the present one. */
static int jump_by_index(struct scan *s, uint32_t mcu)
{
	const uint32_t per_row = s->shape.mcus_per_row, step = s->index->mcu_step;
	const uint32_t states_per_row = checkpoints_states_per_row(s->index);
	uint32_t state = mcu / per_row * states_per_row + mcu % per_row / step;
	int32_t dc[3];
	uint64_t bit;

	for (;; state--) {
		uint32_t there = state / states_per_row * per_row + state % states_per_row * step;

		if (there <= s->at)
			return 0;
		if (!checkpoints_get(s->index, state, &bit, dc))
			continue;
		uint32_t interval = interval_of(s, there);

		if (bit < (uint64_t)s->interval_starts[interval] * 8 ||
		    bit >= (uint64_t)s->interval_starts[interval + 1] * 8)
			return SCAN_E_UNSURE;
		scan_stand_at(s, there, bit, dc);
		return 0;
	}
}

/* Goes to `mcu`, which is not before the present position, by the shortest way. */
int scan_go_to(struct scan *s, uint32_t mcu)
{
	uint32_t interval = interval_of(s, mcu);
	int r;

	if (s->shape.restart_interval && interval * s->shape.restart_interval > s->at)
		stand_at_interval(s, interval);
	if (s->index && (r = jump_by_index(s, mcu)))
		return r;
	while (s->at < mcu) {
		if (s->at == s->stop && (r = scan_arrive(s)))
			return r;
		uint32_t to = s->stop < mcu ? s->stop : mcu;

		if (s->entropy->skip(&s->state, &s->layout, to - s->at, s->interval_end) < 0 || scan_bits_left(s) < 0)
			return SCAN_E_UNSURE;
		s->at = to;
	}
	return s->at == s->stop ? scan_arrive(s) : 0;
}
