#include "config/error.h"

#include <errno.h>

void config_error_one_line(struct config_error *err)
{
	for (char *c = err->text; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
}

int config_go_on(int e, struct config_error *err)
{
	if (e != -EINVAL || !err->on_mistake)
		return e;
	config_error_one_line(err);
	err->on_mistake(err->text);
	err->text[0] = '\0';
	err->n_mistakes++;
	return 0;
}
