/* Image files below a folder, by an index: the common part of imagefolder and files lists after indexing. */
#ifndef BATCHD_TREE_H
#define BATCHD_TREE_H

#include "dataset/columns.h"
#include "dataset/impl.h"
#include "dataset/folder/manifest.h"

/* The folder that a source names, as a descriptor of the caller's own: source->fds[which], or path when the source is
 * trusted and came without descriptors. Returns it or negative errno with err filled in. */
int tree_open_root(const struct dataset_source *source, unsigned which, const char *path, struct dataset_error *err);

/* Identifies a folder, over restarts as well: device numbers may change with a restart, so a file system with an id of its
 * own is identified by that. */
void tree_identify(int root_fd, uint64_t key[2]);

/* Makes the data set. Takes root_fd and *index, also when it fails (-ENOMEM). `path` is for messages and the id.
 * crosses: some folders lie on other mounts than the root. For a peer that is not trusted, mounts that appear later are
 * not entered, unless the data set counts as a server's in any case: otherwise a FUSE server mounted below a local
 * folder would block threads that are for local disks. */
int tree_create(const struct dataset_source *source, const char *path, int root_fd, struct manifest *index,
		bool crosses, struct dataset **out, struct dataset_error *err);
/* Adds values of the samples as further fields. Takes the columns' contents; the builder is empty afterwards. */
int tree_add_columns(struct dataset *ds, struct columns_builder *columns, bool has_label, struct dataset_error *err);
/* For trusted access, instead of `crosses`: whether a folder lies on another file system than the root, and on a
 * server's. */
bool tree_reaches_server(int root_fd, const struct manifest *index, const struct data_access *access);

#endif
