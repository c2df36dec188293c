//go:build cgo && lmdb

/* session.c: opens and closes sessions, and counts their memory. */
#include <stdlib.h>

#include "core.h"

int ndb_session_open(ndb_store *store, ndb_session **out) {
	ndb_session *s = calloc(1, sizeof *s);
	*out = NULL;
	if (!s) return ndb_fail(NDB_E_MEMORY, "out of memory");
	s->store = store;
	s->stamp = 1;
	ndb_tree_init(&s->local);
	ndb_layer_init(&s->own);
	if (store) {
		pthread_mutex_lock(&store->lock);
		s->superseded = atomic_load(&store->superseded);
		s->next = store->sessions;
		if (s->next) s->next->previous = s;
		store->sessions = s;
		pthread_mutex_unlock(&store->lock);
		s->version = UINT64_MAX;
	}
	*out = s;
	return NDB_OK;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* An upper bound of the bytes that saved trees in memory keep alive: the oldest keeps at most the
 * bytes shed since it was taken, and each at most its own size. */
static uint64_t saved_bytes(const ndb_session *s) {
	uint64_t local = 0, shed_local = ndb_session_shed(s, 0);
	for (uint32_t i = 0; i < s->local_state_count; i++)
		local += least(shed_local - s->local_states[i].shed, s->local_states[i].tree.bytes);
	return least(local, shed_local - s->local_states[0].shed);
}

uint64_t ndb_change_bytes(const ndb_session *s) {
	return s->killed_cap * sizeof *s->killed + s->killed_bytes + s->undo_cap * sizeof *s->undo +
	       s->reads.cap + s->reads.point_cap * sizeof *s->reads.points +
	       s->reads.range_cap * sizeof *s->reads.ranges + ndb_session_own_bytes(s);
}

uint64_t ndb_session_bytes(const ndb_session *s) {
	uint64_t bytes = s->local.bytes + s->iterator_bytes + s->cache_slots * sizeof *s->cache +
	                 s->mark_cap * sizeof *s->marks + s->local_state_cap * sizeof *s->local_states +
	                 ndb_change_bytes(s);
	if (s->iterators) bytes += ndb_iterators_pinned(s);
	if (s->local_state_count) bytes += saved_bytes(s);
	return bytes;
}

void ndb_session_limits(ndb_session *s, uint64_t pending_bytes, const volatile uint32_t *stop) {
	s->pending_limit = pending_bytes, s->stop = stop;
}

void ndb_session_read_only(ndb_session *s) { s->read_only = 1; }

void ndb_session_close(ndb_session *s) {
	if (!s) return;
	while (s->iterators) ndb_iter_close(s->iterators);
	if (s->level) ndb_transaction_free(s);
	ndb_unlock_all(s);
	ndb_store *store = s->store;
	if (store) {
		pthread_mutex_lock(&store->lock);
		if (s->previous) s->previous->next = s->next;
		else store->sessions = s->next;
		if (s->next) s->next->previous = s->previous;
		pthread_mutex_unlock(&store->lock);
	}
	ndb_view_release(&s->view);
	ndb_layer_clear(&s->own);
	ndb_tree_clear(&s->local);
	ndb_entry_unref(s->held);
	ndb_reads_free(&s->reads);
	free(s->killed);
	free(s->marks);
	free(s->undo);
	free(s->cache);
	free(s->local_states);
	free(s);
}
