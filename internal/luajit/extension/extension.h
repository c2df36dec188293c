// An extension: what a library in C, such as the node database, adds to an engine. Scripts get its
// modules with require; the modules call its functions through FFI. The library is linked apart:
// the two know each other by these structs alone.

#ifndef PERIGEE_EXTENSION_H
#define PERIGEE_EXTENSION_H

#include <stddef.h>
#include <stdint.h>

struct plua_vm;

// What the engine gives to its extension, before anything is called.
typedef struct plua_extension_host {
	struct plua_vm *vm;
	size_t memory;                 // bytes that the VM may hold
	int64_t event_ms;              // the time limit of an event
	const volatile uint32_t *stop; // not 0: the run ends, and a call that takes long returns
	int *unfinished; // to set when an event may leave something that `finish` has to end
	// charge counts bytes that were taken, or given back, as memory of the VM. More than fit end the
	// run at its next safe point.
	void (*charge)(struct plua_vm *vm, int64_t bytes);
	void (*stop_event)(struct plua_vm *vm); // the time of the event is over
} plua_extension_host;

typedef struct plua_extension_function {
	const char *name;
	void *address;
} plua_extension_function;

typedef struct plua_extension {
	plua_extension_host host;
	const char *marker;                       // getmetatable of the modules' own userdata
	const plua_extension_function *functions; // for FFI; ended by one without a name
	const char *const *codes; // names of the results -1, -2, and so on; ended by NULL

	// open begins a session when a script first needs it, and may be called again. It returns an
	// error message, or NULL. The functions take the extension for a session.
	const char *(*open)(struct plua_extension *x);
	void (*charge)(struct plua_extension *x); // counts again what it holds
	void (*finish)(struct plua_extension *x); // ends what the event has left
	void (*idle)(struct plua_extension *x);   // a run has ended
	// frees x; after the VM, whose finalizers call functions
	void (*close)(struct plua_extension *x);
} plua_extension;

#endif
