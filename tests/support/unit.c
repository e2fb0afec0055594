/* Runs C tests: unit [SUITE...]. Without names all suites of this program, one after the other; unit --list prints their
 * names. $BATCHD_TEST=TEXT: only tests with TEXT in their names. tests/run/c runs suites side by side. */
#include "suite.h"

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--list"))
		return suites_list();
	return suites_run(argv + 1);
}
