/* Reads shards of MosaicML streaming (MDS): a count, offsets of the samples, a description of the columns in JSON, and the
 * samples, each the sizes of its columns of variable size and then the columns. */
#ifndef BATCHD_MDS_H
#define BATCHD_MDS_H

#include "dataset/shards/members.h"

/* Gives every column of every sample to `m`, as a member NUMBER.COLUMN. Without a list of fields, the first picture is the
 * image, and a whole number called label, cls, class or y the label. Compressed shards, pickled columns that are wanted,
 * and sizes that do not add up are refused: negative errno with the reader's err. */
int mds_scan(struct members *m);

#endif
