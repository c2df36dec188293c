#include "limit.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "fault.h"

/* The heap may outgrow the limit by garbage: at `tripping` bytes the next safe
 * point collects, and stops the run when more than the limit is live. Only what
 * not even the ceiling holds is refused, because the compiler copes badly with
 * a refused allocation. */
static size_t tripping(const pg_vm *vm) { return vm->limit + vm->limit / 4; }
static size_t ceiling(const pg_vm *vm) { return vm->limit * 2 + (1 << 20); }

static void lock(pg_vm *vm) {
	while (__atomic_test_and_set(&vm->lock, __ATOMIC_ACQUIRE)) sched_yield();
}

static void unlock(pg_vm *vm) { __atomic_clear(&vm->lock, __ATOMIC_RELEASE); }

static void hook(lua_State *L, lua_Debug *ar);

/* arm makes every VM instruction call the hook, and compiled loops leave for the
 * interpreter. The hook belongs to the VM, not to a coroutine. Another thread may
 * do this while the VM runs; the two can then disagree on the dispatch table, so
 * that arming again has to rewrite it, hence first off, then on. */
static void arm(pg_vm *vm) {
	if (!vm->L) return;
	if (vm->armed) lua_sethook(vm->L, NULL, 0, 0);
	lua_sethook(vm->L, hook, LUA_MASKCOUNT, 1);
	vm->armed = 1;
}

static void disarm(pg_vm *vm) {
	if (vm->armed) lua_sethook(vm->L, NULL, 0, 0);
	vm->armed = 0;
}

void pg_vm_stop(pg_vm *vm, int kind) {
	lock(vm);
	if (!vm->run.stop) vm->run.stop = kind;
	if (vm->run.running == PG_RUNS) arm(vm);
	unlock(vm);
}

void pg_vm_watch(pg_vm *vm, uint32_t number, uint32_t event, int kind) {
	lock(vm);
	if (vm->run.running == PG_RUNS && vm->run.number == number) {
		if (kind && !vm->run.stop && (kind != PG_EVENT_TIME || vm->run.event == event)) {
			vm->run.stop_event = event;
			vm->run.stop = kind;
		}
		if (vm->run.stop) arm(vm);
	}
	unlock(vm);
}

/* relent takes back a stop that was meant for an event already left. */
static void relent(pg_vm *vm) {
	if (vm->run.stop == PG_EVENT_TIME && vm->run.event != vm->run.stop_event) vm->run.stop = 0;
}

void pg_vm_begin(pg_vm *vm) {
	vm->run.event = 0;
	pg_vm_continue(vm);
}

/* thread_clock is the clock of this thread's processor time, or -1. */
static clockid_t thread_clock(void) {
	static __thread clockid_t clock; /* 0 is another clock: not known yet */
	if (!clock && pthread_getcpuclockid(pthread_self(), &clock) != 0) clock = -1;
	return clock;
}

void pg_vm_continue(pg_vm *vm) {
	vm->run.number++;
	vm->run.clock = thread_clock();
	__atomic_store_n(&vm->run.running, PG_RUNS, __ATOMIC_RELEASE);
	if (vm->tripped || vm->run.stop) {
		lock(vm);
		arm(vm);
		unlock(vm);
	}
}

int64_t pg_vm_spent(const pg_vm *vm) {
	struct timespec t;
	if (vm->run.clock == -1 || clock_gettime(vm->run.clock, &t) != 0) return -1;
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void pg_vm_pause(pg_vm *vm) {
	lock(vm);
	vm->run.running = PG_RESTS;
	disarm(vm);
	unlock(vm);
}

void pg_vm_end(pg_vm *vm) {
	lock(vm);
	vm->run.running = PG_RESTS;
	relent(vm);
	disarm(vm);
	if (vm->run.stop) vm->broken = vm->run.stop;
	unlock(vm);
}

void pg_vm_forgive(pg_vm *vm) {
	lock(vm);
	vm->run.stop = 0;
	unlock(vm);
}

/* collect frees the garbage, and ends the run when what lives is too much. */
static void collect(lua_State *L, pg_vm *vm, size_t more) {
	vm->tripped = 0;
	lua_gc(L, LUA_GCCOLLECT, 0);
	vm->tripped = 0;
	if (vm->used + more > vm->limit) pg_vm_stop(vm, PG_MEMORY);
}

static void hook(lua_State *L, lua_Debug *ar) {
	(void)ar;
	pg_vm *vm = pg_vm_of(L);
	if (vm->tripped) collect(L, vm, 0);
	lock(vm);
	relent(vm);
	if (!vm->run.stop) disarm(vm);
	unlock(vm);
	PG_CHECK(L, vm);
}

void pg_vm_reserve(lua_State *L, pg_vm *vm, size_t n) {
	if (n <= tripping(vm) && vm->used + n <= tripping(vm)) return;
	if (n <= vm->limit) collect(L, vm, n);
	else pg_vm_stop(vm, PG_MEMORY);
	PG_CHECK(L, vm);
}

/* resize is what pg_alloc does where no block of the slab can be had again. */
static __attribute__((noinline)) void *resize(pg_vm *vm, void *ptr, size_t osize, size_t nsize) {
	if (nsize > osize) {
		size_t used = vm->used + (nsize - osize);
		if (used > ceiling(vm)) {
			pg_vm_stop(vm, PG_MEMORY);
			return NULL;
		}
		if (used > tripping(vm) && !vm->tripped) {
			vm->tripped = 1;
			lock(vm);
			if (vm->run.running == PG_RUNS) arm(vm);
			unlock(vm);
		}
	}
	void *p = pg_slab_resize(&vm->slab, ptr, osize, nsize);
	if (p) vm->used += nsize - osize;
	return p;
}

void *pg_alloc(void *ud, void *ptr, size_t osize, size_t nsize) {
	pg_vm *vm = ud;
	if (nsize == 0) {
		vm->used -= osize;
		if (pg_slab_has(&vm->slab, ptr)) pg_slab_free(&vm->slab, ptr, osize);
		else free(ptr);
		return NULL;
	}
	void *p;
	if (!ptr && vm->used + nsize <= tripping(vm) && (p = pg_slab_again(&vm->slab, nsize))) {
		vm->used += nsize;
		return p;
	}
	return resize(vm, ptr, osize, nsize);
}
