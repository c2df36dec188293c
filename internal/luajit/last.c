// The end of a call whose last act is to call a function of Go: Lua ends first, and Go
// calls the function then, without a way back.

#include <string.h>

#include <lj_debug.h>
#include <lj_frame.h>
#include <lj_vm.h>

#include "frontend.h"

// back moves from the frame of a function to that of the one that called it, and
// returns where that goes on; NULL when no function of Lua did.
static const BCIns *back(cTValue **frame) {
	cTValue *f = *frame;
	if (frame_isvarg(f)) f = frame_prevd(f);
	if (frame_islua(f)) {
		*frame = frame_prevl(f);
		return frame_pc(f);
	}
	if (frame_iscont(f) && frame_contf(f) == lj_cont_stitch) { // compiled code was left for it
		*frame = frame_prevd(f);
		return frame_contpc(f);
	}
	return NULL;
}

// outermost tells whether the function of a frame is what the call called.
static int outermost(cTValue *f) {
	if (frame_isvarg(f)) f = frame_prevd(f);
	return frame_typep(f) == FRAME_CP;
}

int last_of_call(lua_State *L, front *f, int below) {
	pg_vm *vm = f->vm;
	if (!f->calls_directly || f->loading || L != vm->co || vm->frames->outer || vm->run.stop) return 0;
	cTValue *frame = L->base - 1;
	for (; below > 0; below--)
		if (!back(&frame)) return 0;
	f->last.next = NULL;
	if (outermost(frame)) { // the function of Lua has left its place to ours
		f->last.results = LAST_RETURNED;
		return 1;
	}
	const BCIns *next = back(&frame);
	if (!next || bc_op(*next) != BC_RET0 || !outermost(frame)) return 0;
	f->last.proto = funcproto(frame_func(frame));
	f->last.next = next;
	f->last.results = LAST_DROPPED;
	return 1;
}

void last_place(front *f) {
	front_last *last = &f->last;
	last->line = last->function = 0;
	last->file = NULL;
	if (!last->next) return;
	GCproto *pt = last->proto;
	last->line = (uint32_t)lj_debug_line(pt, proto_bcpos(pt, (const BCIns *)last->next) - 1);
	last->function = (uint32_t)pt->firstline;
	if (strcmp(proto_chunknamestr(pt), f->vm->chunk) != 0) last->file = proto_chunknamestr(pt) + 1;
}
