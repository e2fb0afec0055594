/* What is wrong with a configuration. */
#ifndef BATCHD_CONFIG_ERROR_H
#define BATCHD_CONFIG_ERROR_H

struct config_error {
	char text[640]; /* "FILE:LINE: key: what is wrong; what was expected" */
	/* NULL: the first mistake ends the reading. Otherwise it is called with each mistake, and reading continues
	 * where it can. */
	void (*on_mistake)(const char *text);
	unsigned n_mistakes; /* reported so far; `text` has only the mistakes not reported */
};

/* Whether to go on after a step of reading that returned e. 0: yes, also after a mistake that on_mistake was given;
 * else e. */
int config_go_on(int e, struct config_error *err);
/* Removes line ends: a value quoted in a message may contain some. */
void config_error_one_line(struct config_error *err);

#endif
