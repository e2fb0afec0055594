#include "base/thread-kind.h"

_Thread_local enum thread_kind thread_kind;
