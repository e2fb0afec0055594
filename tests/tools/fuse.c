/* fuse FD FOLDER: serves FOLDER on a mounted /dev/fuse descriptor, for tests in Python that stop it. See fuse.h. */
#include "fuse.h"

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: fuse FD FOLDER\n");
		return 2;
	}
	fuse_serve(atoi(argv[1]), argv[2]);
}
