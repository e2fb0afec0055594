/* Mixing on the GPU: launches of the mixing kernels. */
#ifndef BATCHD_CLIENT_CUDA_MIX_LAUNCH_H
#define BATCHD_CLIENT_CUDA_MIX_LAUNCH_H

#include "gpu/delivery.h"
#include "finish/mix.h"

/* Queue the work of a whole batch; rows: its table; NULL: no row is mixed. In the GPU's context; a CUDA result. in: the batch's stored rows; labels:
 * its labels. */
int mix_launch_images(const struct delivery *d, const struct finishing *of, const struct batchd_mix_row *rows,
		      uint32_t n_rows, cuda_ptr in, cuda_ptr to, struct cuda_stream *stream);
int mix_launch_targets(const struct delivery *d, const struct mix *mix, const struct batchd_mix_row *rows,
		       uint32_t n_rows, cuda_ptr labels, cuda_ptr to, struct cuda_stream *stream);

#endif
