/* OWN_HEAP: whether a test may replace malloc and free with functions of its own. A sanitizer has replaced them
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
