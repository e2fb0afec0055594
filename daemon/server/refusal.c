/* See refusal.h. */
#include "server/refusal.h"

#include <stdarg.h>
#include <stdio.h>

int refuse(struct refusal *why, Batchd__Wire__ErrorCode code, const char *field, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	why->code = code;
	why->field = field;
	return REFUSED;
}

int refuse_memory(struct refusal *why)
{
	return refuse(why, BATCHD__WIRE__ERROR_CODE__INTERNAL, "", "out of memory");
}
