/* Reads the directory of a zip archive: members that are stored or deflated, zip64, data descriptors.
 *
 * With a list of fields (members.h) the archive is a shard as WebDataset groups its files, in the order of the directory.
 * Without one it is a folder of class folders: each picture that ImageFolder would list is a sample, in ImageFolder's
 * order. */
#ifndef BATCHD_ZIP_H
#define BATCHD_ZIP_H

#include "dataset/shards/members.h"

/* Gives every member that is wanted to `m`, with the place of its data, which the member's own header tells. Encrypted
 * members, other methods, several disks, members that overlap or lie outside the archive, sizes that deflate cannot
 * reach and names with control characters are refused: negative errno with the reader's err. */
int zip_scan(struct members *m);

#endif
