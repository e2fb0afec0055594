/* The layout of batchd.h's structs, one "struct field offset size" a line, for the test that the Python binding has the same. */
#include <stddef.h>
#include <stdio.h>

#include "../../client/batchd.h"

#define FIELD(s, f) printf(#s " " #f " %zu %zu\n", offsetof(struct s, f), sizeof ((struct s *)0)->f)
#define SIZE(s) printf(#s " - 0 %zu\n", sizeof(struct s))

static void print_options(void)
{
	SIZE(batchd_options);
	FIELD(batchd_options, size_bytes);
	FIELD(batchd_options, socket);
	FIELD(batchd_options, dataset);
	FIELD(batchd_options, transform);
	FIELD(batchd_options, job);
	FIELD(batchd_options, dtype);
	FIELD(batchd_options, layout);
	FIELD(batchd_options, mode);
	FIELD(batchd_options, batch_size);
	FIELD(batchd_options, rank);
	FIELD(batchd_options, world_size);
	FIELD(batchd_options, num_workers);
	FIELD(batchd_options, n_slots);
	FIELD(batchd_options, seed);
	FIELD(batchd_options, incarnation);
	FIELD(batchd_options, shuffle);
	FIELD(batchd_options, drop_last);
	FIELD(batchd_options, apply_exif);
	FIELD(batchd_options, own_batches);
	FIELD(batchd_options, writable);
	FIELD(batchd_options, autostart);
	FIELD(batchd_options, on_progress);
	FIELD(batchd_options, progress_arg);
	FIELD(batchd_options, program);
	FIELD(batchd_options, device);
}

static void print_info(void)
{
	SIZE(batchd_info);
	FIELD(batchd_info, size_bytes);
	FIELD(batchd_info, dataset_id);
	FIELD(batchd_info, loader_id);
	FIELD(batchd_info, n_samples);
	FIELD(batchd_info, n_batches);
	FIELD(batchd_info, n_samples_rank);
	FIELD(batchd_info, n_classes);
	FIELD(batchd_info, rank);
	FIELD(batchd_info, world_size);
	FIELD(batchd_info, batch_size);
	FIELD(batchd_info, window);
	FIELD(batchd_info, n_dims);
	FIELD(batchd_info, shape);
	FIELD(batchd_info, n_label_dims);
	FIELD(batchd_info, label_shape);
	FIELD(batchd_info, dtype);
	FIELD(batchd_info, label_dtype);
	FIELD(batchd_info, layout);
	FIELD(batchd_info, has_normalize);
	FIELD(batchd_info, mean);
	FIELD(batchd_info, std);
	FIELD(batchd_info, socket);
	FIELD(batchd_info, job);
	FIELD(batchd_info, daemon_version);
	FIELD(batchd_info, stored_dtype);
	FIELD(batchd_info, stored_layout);
	FIELD(batchd_info, stored_shape);
	FIELD(batchd_info, device_path);
	FIELD(batchd_info, device_ordinal);
	FIELD(batchd_info, device_uuid);
	FIELD(batchd_info, device);
	FIELD(batchd_info, device_reason);
	FIELD(batchd_info, can_finish);
}

static void print_batch(void)
{
	SIZE(batchd_batch);
	FIELD(batchd_batch, size_bytes);
	FIELD(batchd_batch, data);
	FIELD(batchd_batch, labels);
	FIELD(batchd_batch, indices);
	FIELD(batchd_batch, n_rows);
	FIELD(batchd_batch, n_padding);
	FIELD(batchd_batch, n_replaced);
	FIELD(batchd_batch, slot);
	FIELD(batchd_batch, generation);
	FIELD(batchd_batch, epoch);
	FIELD(batchd_batch, base);
	FIELD(batchd_batch, step);
	FIELD(batchd_batch, wait_ns);
	FIELD(batchd_batch, last);
	FIELD(batchd_batch, device_data);
	FIELD(batchd_batch, device_labels);
}

int main(void)
{
	print_options();
	print_info();
	print_batch();
	return 0;
}
