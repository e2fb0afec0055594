/* See session-opened.h. */
#include "server/session-opened.h"

#include <assert.h>
#include <stdio.h>

#include "batch/device-slab.h"
#include "server/device.h"
#include "server/job.h"
#include "image/transform/views.h"
#include "server/producer-job.h"
#include "server/session-state.h"
#include "base/log.h"
#include "base/thread-kind.h"

/* The wire's own structs for an Opened message. */
struct field_messages {
	Batchd__Wire__Field field[SLOT_MAX_FIELDS], *at[SLOT_MAX_FIELDS];
	float mean[SLOT_MAX_FIELDS][3], std[SLOT_MAX_FIELDS][3];
};

static void fill_view(const struct loader *l, struct field_messages *own, unsigned k)
{
	const struct pipeline *view = views_at(l->recipe.pipeline, k);
	Batchd__Wire__Field *to = &own->field[k];
	to->view = k + 1;
	to->to_tensor = pipeline_to_tensor(view);
	if (!pipeline_normalize(view, own->mean[k], own->std[k]))
		return;
	to->mean = own->mean[k];
	to->std = own->std[k];
	to->n_mean = to->n_std = 3;
}

static void fill_fields(const struct loader *l, struct field_messages *own, Batchd__Wire__Opened *m)
{
	for (unsigned k = 0; k < l->layout.n_fields; k++) {
		const struct field *f = &l->fields[k];
		const struct slot_field *place = &l->layout.field[k];
		Batchd__Wire__Field *to = own->at[k] = &own->field[k];
		batchd__wire__field__init(to);
		to->name = (char *)f->name;
		to->kind = place->ragged ? BATCHD__WIRE__FIELD_KIND__RAGGED : BATCHD__WIRE__FIELD_KIND__DENSE;
		to->dtype = (Batchd__Wire__Dtype)f->dtype;
		to->n_shape = f->n_dims;
		to->shape = (uint32_t *)f->shape;
		to->text = f->text;
		to->bytes = f->bytes;
		to->offset = place->offset;
		to->values_offset = place->values_offset;
		to->most_values = place->most_values;
	}
	for (unsigned k = 0; l->recipe.pipeline && k < views_n(l->recipe.pipeline); k++)
		fill_view(l, own, k); /* the first fields: fields_make */
	m->n_field = l->layout.n_fields;
	m->field = own->at;
	m->layout = l->recipe.pipeline ? (Batchd__Wire__Layout)l->spec.layout : BATCHD__WIRE__LAYOUT__AS_STORED;
}

void session_send_opened(struct session *s, int ring)
{
	assert(is_loop_thread());
	assert(s->job && s->job->loader && s->consumer.slots);
	struct loader *l = s->job->loader;
	struct slots *slots = s->consumer.slots;
	assert(slots && slots->n_made > 0);
	Batchd__Wire__Opened o = BATCHD__WIRE__OPENED__INIT;
	o.dataset_id = dataset_id(l->recipe.dataset);
	o.loader_id = l->id;
	o.content_id = dataset_content_id(l->recipe.dataset);
	o.pipeline_id = l->pipeline_id;
	o.n_samples = dataset_n(l->recipe.dataset);
	o.n_left_out = dataset_n_left_out(l->recipe.dataset);
	o.left_out = (char *)dataset_left_out(l->recipe.dataset);
	o.n_classes = dataset_n_classes(l->recipe.dataset);
	o.rank = s->consumer.rank;
	o.world_size = l->spec.world_size;
	o.policy = l->spec.share ? (Batchd__Wire__Policy)(l->spec.policy + 1) : BATCHD__WIRE__POLICY__POLICY_DEFAULT;
	struct field_messages fields;
	fill_fields(l, &fields, &o);
	o.slab_bytes = slots->slab.bytes;
	o.n_slots = slots->n;
	o.window = l->is_async ? l->group.slot_quota : slots->n_sure; /* slots that it can rely on; more may be made */
	o.slot_bytes = l->layout.slot_bytes;
	o.indices_offset = l->layout.indices_offset;
	if (s->job->served)
		producer_job_describe(s->job, &o);
	device_describe(s, &o);
	o.ring = RING_LAYOUT;
	int fds[WIRE_OPENED_FDS] = { slots->slab.fd, ring };
	unsigned n_fds = 2;
	if (device_fd(s) >= 0)
		fds[n_fds++] = device_fd(s);
	peer_send(s->peer, WIRE_SERVER(OPENED, opened, &o), fds, n_fds);
	log_record(LOG_LEVEL_INFO, "session-opened", "session %llu: %s (pid %d, uid %u) is rank %u of job %s, %s",
		   (unsigned long long)s->number, s->program, (int)s->pid, (unsigned)s->uid, s->consumer.rank,
		   l->spec.job, l->spec.dataset);
}
