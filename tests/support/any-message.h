/* Messages of clients with nothing in them, of each kind that the wire has. */
#ifndef BATCHD_TESTS_ANY_MESSAGE_H
#define BATCHD_TESTS_ANY_MESSAGE_H

#include <stdlib.h>

#include "sources-text.h"
#include "wire.h"

struct any_message {
	Batchd__Wire__ClientMessage message;
	_Alignas(16) unsigned char body[1024];
};

static inline size_t any_message_kinds(void)
{
	return batchd__wire__client_message__descriptor.n_fields;
}

/* i: below any_message_kinds. It refers to itself. */
static inline void any_message_make(struct any_message *m, size_t i)
{
	const ProtobufCFieldDescriptor *f = &batchd__wire__client_message__descriptor.fields[i];
	const ProtobufCMessageDescriptor *d = f->descriptor;
	if (d->sizeof_message > sizeof(m->body))
		abort();
	d->message_init((ProtobufCMessage *)(void *)m->body);
	batchd__wire__client_message__init(&m->message);
	m->message.body_case = (Batchd__Wire__ClientMessage__BodyCase)f->id;
	*(void **)(void *)((char *)&m->message + f->offset) = m->body;
	if (f->id == BATCHD__WIRE__CLIENT_MESSAGE__BODY_PRODUCE)
		m->message.produce->name = (char *)"a"; /* the wire refuses an empty one */
	if (f->id == BATCHD__WIRE__CLIENT_MESSAGE__BODY_OPEN)
		m->message.open->sources = sources_of("a"); /* and none */
}

#endif
