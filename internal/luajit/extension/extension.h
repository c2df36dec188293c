// An extension: modules that a C library, such as the node database, adds to an engine. Scripts
// load the modules with require; the modules call the library's functions through FFI. Engine and
// library are not linked to each other: they only share these structs.

#ifndef PERIGEE_EXTENSION_H
#define PERIGEE_EXTENSION_H

#include <stddef.h>
#include <stdint.h>

struct plua_vm;

// The engine's side, which it provides before it calls the extension.
typedef struct plua_extension_host {
	struct plua_vm *vm;
	size_t memory;                 // memory limit of the VM, in bytes
	int64_t event_ms;              // the time limit of an event
	const volatile uint32_t *stop; // not 0: the run must end, so long calls return
	int *unfinished; // set it when an event may leave something for `finish` to handle
	// charge counts bytes allocated or freed towards the VM's memory. If the limit is exceeded, the
	// run at its next safe point.
	void (*charge)(struct plua_vm *vm, int64_t bytes);
	void (*stop_event)(struct plua_vm *vm); // the event has used up its time
} plua_extension_host;

typedef struct plua_extension_function {
	const char *name;
	void *address;
} plua_extension_function;

typedef struct plua_extension {
	plua_extension_host host;
	const char *marker; // result of getmetatable for the modules' own userdata
	const plua_extension_function *functions; // for FFI; the last one has no name
	const char *const *codes; // names of the results -1, -2, and so on; ends with NULL

	// open begins a session when a script first needs it; it may be called again. It returns an
	// error message, or NULL. The functions take the extension in place of a session.
	const char *(*open)(struct plua_extension *x);
	// attach begins a run on sessions of the caller, until idle; they outlive the run. others only
	// read; each session may be NULL. NULL: the extension has sessions of its own.
	void (*attach)(struct plua_extension *x, void *session, void *const *others, size_t count);
	void (*charge)(struct plua_extension *x); // counts its memory again
	// finish cleans up after an event. If the event failed or will run again, keep is 0: with a
	// session of the caller, its changes are undone.
	void (*finish)(struct plua_extension *x, int keep);
	void (*idle)(struct plua_extension *x); // called at the end of a run
	// frees x; called after the VM is closed, since finalizers call the functions
	void (*close)(struct plua_extension *x);
} plua_extension;

#endif
