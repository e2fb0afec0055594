/* A GPU's name in text form: as nvidia-smi, CUDA_VISIBLE_DEVICES and the log write it. In a file of its own because
 * builds without CUDA need it too. */
#include "gpu/gpus.h"

#include <stdio.h>

void gpu_uuid_format(const unsigned char u[GPU_UUID_BYTES], char text[GPU_UUID_TEXT_BYTES])
{
	snprintf(text, GPU_UUID_TEXT_BYTES, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}
