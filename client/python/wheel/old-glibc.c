/* Functions that a program takes from glibc under a later version than it needs (make STATIC_DEPS=1): with these, a wheel
 * that is linked with glibc 2.31 runs on 2.28. The linker's --wrap gives them to what is linked from archives, too. */
#include <sys/syscall.h>
#include <unistd.h>

/* 2.29 has these without the error handling of System V; the earlier ones compute the same. */
#ifdef __aarch64__
#define OLDEST "GLIBC_2.17"
#else
#define OLDEST "GLIBC_2.2.5"
#endif
#define OLD(name) __asm__(".symver old_" #name ", " #name "@" OLDEST)

#define ITS __attribute__((visibility("default")))
ITS extern double old_exp(double x), old_log(double x), old_pow(double x, double y);
OLD(exp);
OLD(log);
OLD(pow);

double __wrap_exp(double x), __wrap_log(double x), __wrap_pow(double x, double y);
ssize_t __wrap_getdents64(int fd, void *buffer, size_t size);

double __wrap_exp(double x)
{
	return old_exp(x);
}

double __wrap_log(double x)
{
	return old_log(x);
}

double __wrap_pow(double x, double y)
{
	return old_pow(x, y);
}

/* Its function came with 2.30. */
ssize_t __wrap_getdents64(int fd, void *buffer, size_t size)
{
	return syscall(SYS_getdents64, fd, buffer, size);
}
