/* OWN_HEAP: whether a test may put functions of its own in the place of malloc and free. A sanitizer has done so
 * already. */
#ifndef BATCHD_TESTS_OWN_HEAP_H
#define BATCHD_TESTS_OWN_HEAP_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_HEAP 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_HEAP 0
#else
#define OWN_HEAP 1
#endif
#else
#define OWN_HEAP 1
#endif

#endif
