/* What a worker does with the row in hand. The worker stores it in one byte (workspace_stage), which any thread may read. */
#ifndef BATCHD_STAGE_H
#define BATCHD_STAGE_H

enum stage {
	STAGE_NONE, /* it has no row, or copies rows of arrays */
	STAGE_READ, /* it looks for the row's bytes, or reads them */
	STAGE_DECODE,
	STAGE_TRANSFORM, /* the ops of the pipeline */
	STAGE_MEMORY,    /* it waits for working memory */
	N_STAGES
};

#endif
