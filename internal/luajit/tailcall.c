// Script calls whose last act is to call a Go function: Lua ends first, and Go then calls the
// function without resuming Lua.

#include <string.h>

#include <lj_debug.h>
#include <lj_frame.h>
#include <lj_vm.h>

#include "engine.h"

// back moves from a function's frame to its caller's, and returns the caller's next instruction;
// NULL if the caller is not a Lua function.
static const BCIns *back(cTValue **frame) {
	cTValue *at = *frame;
	if (frame_isvarg(at)) at = frame_prevd(at);
	if (frame_islua(at)) {
		*frame = frame_prevl(at);
		return frame_pc(at);
	}
	if (frame_iscont(at) && frame_contf(at) == lj_cont_stitch) { // called from compiled code
		*frame = frame_prevd(at);
		return frame_contpc(at);
	}
	return NULL;
}

// outermost reports whether the frame's function is the one that C called.
static int outermost(cTValue *at) {
	if (frame_isvarg(at)) at = frame_prevd(at);
	return frame_typep(at) == FRAME_CP;
}

int plua_tail_call_detect(lua_State *L, plua_engine *e, int below) {
	plua_vm *vm = e->vm;
	if (!e->gocall.tail_calls || e->loading || L != vm->co || vm->frames->outer || vm->run.stop)
		return 0;
	cTValue *frame = L->base - 1;
	for (; below > 0; below--)
		if (!back(&frame)) return 0;
	e->gocall.tail.next = NULL;
	if (outermost(frame)) { // a tail call has replaced the Lua function's frame
		e->gocall.tail.results = PLUA_TAIL_RETURNED;
		return 1;
	}
	const BCIns *next = back(&frame);
	if (!next || bc_op(*next) != BC_RET0 || !outermost(frame)) return 0;
	e->gocall.tail.proto = funcproto(frame_func(frame));
	e->gocall.tail.next = next;
	e->gocall.tail.results = PLUA_TAIL_DROPPED;
	return 1;
}

void plua_tail_call_locate(plua_engine *e) {
	plua_tail_call *last = &e->gocall.tail;
	last->line = last->function = 0;
	last->file = NULL;
	if (!last->next) return;
	GCproto *pt = last->proto;
	last->line = (uint32_t)lj_debug_line(pt, proto_bcpos(pt, (const BCIns *)last->next) - 1);
	last->function = (uint32_t)pt->firstline;
	if (strcmp(proto_chunknamestr(pt), e->vm->chunk) != 0) last->file = proto_chunknamestr(pt) + 1;
}
