/* For libraries linked from archives that were not made for a shared library (make STATIC_DEPS=1): their code addresses
 * these three relative to itself, which only reaches this library's own. */
#include <dlfcn.h>
#include <stdio.h>

#undef stdin
#undef stdout
#undef stderr
__attribute__((visibility("hidden"))) FILE *stdin, *stdout, *stderr;

__attribute__((constructor)) static void stdio_find(void)
{
	static const char *const names[] = { "stdin", "stdout", "stderr" };
	FILE **const own[] = { &stdin, &stdout, &stderr };

	for (int i = 0; i < 3; i++) {
		FILE **libcs = dlsym(RTLD_DEFAULT, names[i]);

		*own[i] = libcs ? *libcs : NULL;
	}
}
