/* A transform in a line, for people; `status --json` has it whole. */
#ifndef BATCHD_CTL_TRANSFORM_TEXT_H
#define BATCHD_CTL_TRANSFORM_TEXT_H

#include <stddef.h>

/* "RandomResizedCrop 224, RandomHorizontalFlip, ToTensor, Normalize": the ops of a list by name, each with its first
 * argument if that is a number. Other texts, such as views or a name, as they are. What is longer than size ends in
 * "...". Not printable characters are the caller's business. */
void transform_text(const char *transform, char *text, size_t size);

#endif
