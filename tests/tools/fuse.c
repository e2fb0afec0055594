/* fuse FD FOLDER: serves FOLDER on a mounted /dev/fuse descriptor, for tests in Python that stop it. Ends with the test,
 * however that ends. See fuse.h. */
#include <signal.h>
#include <sys/prctl.h>

#include "fake/fuse/fuse.h"

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: fuse FD FOLDER\n");
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fuse_serve(atoi(argv[1]), argv[2]);
}
