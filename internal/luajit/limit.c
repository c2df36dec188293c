#include "error.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Garbage may exceed the limit. From soft_limit bytes on, the next safe point collects it, and
 * stops the run if the live bytes exceed the limit. Allocations fail only beyond hard_limit,
 * because LuaJIT's compiler does not reliably survive a failure. */
static size_t soft_limit(const plua_vm *vm) { return vm->limit + vm->limit / 4; }
static size_t hard_limit(const plua_vm *vm) { return vm->limit * 2 + (1 << 20); }

static void lock(plua_vm *vm) {
	while (__atomic_test_and_set(&vm->lock, __ATOMIC_ACQUIRE)) sched_yield();
}

static void unlock(plua_vm *vm) { __atomic_clear(&vm->lock, __ATOMIC_RELEASE); }

static void hook(lua_State *L, lua_Debug *ar);

/* arm makes every VM instruction call the hook, and compiled loops exit to the interpreter. The
 * hook belongs to the VM, not to a coroutine. Another thread may arm while the VM runs, and the
 * two may then disagree on the dispatch table. Arming again must rewrite the table, hence off
 * first, then on. */
static void arm(plua_vm *vm) {
	if (!vm->L) return;
	if (vm->armed) lua_sethook(vm->L, NULL, 0, 0);
	lua_sethook(vm->L, hook, LUA_MASKCOUNT | (vm->covers ? LUA_MASKLINE : 0), 1);
	vm->armed = 1;
}

static void disarm(plua_vm *vm) {
	if (vm->armed) lua_sethook(vm->L, vm->covers ? hook : NULL, vm->covers ? LUA_MASKLINE : 0, 0);
	vm->armed = 0;
}

void plua_vm_cover(plua_vm *vm, int covers) {
	vm->covers = covers;
	lua_sethook(vm->L, hook, LUA_MASKLINE, 0);
}

int plua_vm_raise(lua_State *L) {
	plua_vm *vm = plua_vm_of(L);
	plua_error_limit(L, vm);
	lua_pushlightuserdata(L, vm);
	return lua_error(L);
}

void plua_vm_stop(plua_vm *vm, int kind) {
	lock(vm);
	if (!vm->run.stop) vm->run.stop = kind;
	if (vm->run.running == PLUA_RUNNING) arm(vm);
	unlock(vm);
}

void plua_vm_stop_run(plua_vm *vm, uint32_t number, uint32_t event, int kind) {
	lock(vm);
	if (vm->run.running == PLUA_RUNNING && vm->run.number == number) {
		if (kind && !vm->run.stop && (kind != PLUA_EVENT_TIME || vm->run.event == event)) {
			vm->run.stop_event = event;
			vm->run.stop = kind;
		}
		if (vm->run.stop) arm(vm);
	}
	unlock(vm);
}

/* cancel_late_stop cancels a stop meant for an earlier event. */
static void cancel_late_stop(plua_vm *vm) {
	if (vm->run.stop == PLUA_EVENT_TIME && vm->run.event != vm->run.stop_event) vm->run.stop = 0;
}

void plua_vm_begin(plua_vm *vm) {
	vm->run.event = 0;
	plua_vm_continue(vm);
}

/* thread_clock returns the CPU time clock of this thread, or -1. */
static clockid_t thread_clock(void) {
	static __thread clockid_t clock; /* 0, which is another clock, means unset */
	if (!clock && pthread_getcpuclockid(pthread_self(), &clock) != 0) clock = -1;
	return clock;
}

void plua_vm_continue(plua_vm *vm) {
	/* Set the clock first: the watchdog may still see the last run as running, and must not measure
	 * this run by the clock of that run's thread. */
	__atomic_store_n(&vm->run.clock, thread_clock(), __ATOMIC_RELAXED);
	__atomic_store_n(&vm->run.number, vm->run.number + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&vm->run.running, PLUA_RUNNING, __ATOMIC_RELEASE);
	if (vm->over_limit || vm->run.stop) {
		lock(vm);
		arm(vm);
		unlock(vm);
	}
}

int64_t plua_vm_cpu_time(const plua_vm *vm) {
	struct timespec t;
	clockid_t clock = __atomic_load_n(&vm->run.clock, __ATOMIC_RELAXED);
	if (clock == -1 || clock_gettime(clock, &t) != 0) return -1;
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void plua_vm_pause(plua_vm *vm) {
	lock(vm);
	vm->run.running = PLUA_IDLE;
	disarm(vm);
	unlock(vm);
}

static uint64_t clock_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* charge_line adds the time until now to the line that has run. */
static void charge_line(plua_vm *vm) {
	if (vm->timing.of) vm->timing.of->all[vm->timing.line].ns += clock_ns() - vm->timing.since;
}

void plua_vm_end(plua_vm *vm) {
	if (vm->covers == PLUA_TIMES) {
		charge_line(vm);
		vm->timing.of = NULL;
	}
	lock(vm);
	vm->run.running = PLUA_IDLE;
	cancel_late_stop(vm);
	disarm(vm);
	if (vm->run.stop) vm->broken = vm->run.stop;
	unlock(vm);
}

void plua_vm_clear_stop(plua_vm *vm) {
	lock(vm);
	vm->run.stop = 0;
	unlock(vm);
}

/* collect_garbage clears over_limit again after the collection, whose allocations can set it. */
static void collect_garbage(lua_State *L, plua_vm *vm) {
	vm->over_limit = 0;
	lua_gc(L, LUA_GCCOLLECT, 0);
	if (vm->recharge && vm->engine) vm->recharge(vm);
	vm->over_limit = 0;
}

void plua_vm_collect(plua_vm *vm) { collect_garbage(vm->L, vm); }

/* collect frees garbage, and ends the run if the live bytes plus `more` exceed the limit. */
static void collect(lua_State *L, plua_vm *vm, size_t more) {
	collect_garbage(L, vm);
	if (vm->used + more > vm->limit) plua_vm_stop(vm, PLUA_MEMORY);
}

/* lines_of returns the lines of the text with this chunk name, or NULL for the host's own code. */
static plua_lines *lines_of(plua_vm *vm, const char *chunk) {
	if (!strcmp(chunk, vm->chunk)) return &vm->lines;
	for (plua_file *file = vm->files; file; file = file->next)
		if (!strcmp(chunk, file->chunk)) return &file->lines;
	return NULL;
}

/* note_line records the line of a hook. Its memory does not count as the script's. Without memory
 * the line is not recorded. */
static void note_line(lua_State *L, plua_vm *vm, lua_Debug *ar) {
	plua_lines *lines = lua_getinfo(L, "S", ar) ? lines_of(vm, ar->source) : NULL;
	if (!lines || ar->currentline <= 0) return;
	uint32_t line = (uint32_t)ar->currentline;
	if (line >= lines->count) {
		uint32_t count = line + 1 < 256 ? 256 : 2 * (line + 1);
		plua_line *all = realloc(lines->all, count * sizeof *all);
		if (!all) return;
		memset(all + lines->count, 0, (count - lines->count) * sizeof *all);
		lines->all = all, lines->count = count;
	}
	lines->all[line].runs++;
	vm->timing.of = lines, vm->timing.line = line;
}

static void hook(lua_State *L, lua_Debug *ar) {
	plua_vm *vm = plua_vm_of(L);
	if (ar->event == LUA_HOOKLINE) {
		if (vm->covers == PLUA_TIMES) charge_line(vm);
		note_line(L, vm, ar);
		if (vm->covers == PLUA_TIMES) vm->timing.since = clock_ns();
		return;
	}
	if (vm->over_limit) collect(L, vm, 0);
	lock(vm);
	cancel_late_stop(vm);
	if (!vm->run.stop) disarm(vm);
	unlock(vm);
	PLUA_CHECK(L, vm);
}

void plua_vm_reserve(lua_State *L, plua_vm *vm, size_t n) {
	if (n <= soft_limit(vm) && vm->used + n <= soft_limit(vm)) return;
	if (n <= vm->limit) collect(L, vm, n);
	else plua_vm_stop(vm, PLUA_MEMORY);
	PLUA_CHECK(L, vm);
}

/* note_size makes the next safe point check a heap of `used` bytes. */
static void note_size(plua_vm *vm, size_t used) {
	if (used <= soft_limit(vm) || vm->over_limit) return;
	vm->over_limit = 1;
	lock(vm);
	if (vm->run.running == PLUA_RUNNING) arm(vm);
	unlock(vm);
}

void plua_vm_charge(plua_vm *vm, int64_t n) {
	vm->used += (size_t)n;
	if (n <= 0) return;
	if (vm->used > hard_limit(vm)) plua_vm_stop(vm, PLUA_MEMORY);
	else note_size(vm, vm->used);
}

/* resize is plua_vm_alloc without the reuse of slab blocks. */
static __attribute__((noinline)) void *resize(plua_vm *vm, void *ptr, size_t osize, size_t nsize) {
	if (nsize > osize) {
		size_t used = vm->used + (nsize - osize);
		if (used > hard_limit(vm)) {
			plua_vm_stop(vm, PLUA_MEMORY);
			return NULL;
		}
		note_size(vm, used);
	}
	void *p = plua_slab_resize(&vm->slab, ptr, osize, nsize);
	if (p) vm->used += nsize - osize;
	return p;
}

void *plua_vm_alloc(void *ud, void *ptr, size_t osize, size_t nsize) {
	plua_vm *vm = ud;
	if (nsize == 0) {
		vm->used -= osize;
		if (plua_slab_owns(&vm->slab, ptr)) plua_slab_free(&vm->slab, ptr, osize);
		else free(ptr);
		return NULL;
	}
	void *p;
	if (!ptr && vm->used + nsize <= soft_limit(vm) && (p = plua_slab_reuse(&vm->slab, nsize))) {
		vm->used += nsize;
		return p;
	}
	return resize(vm, ptr, osize, nsize);
}
