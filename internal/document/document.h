// A JSON document as an index over its bytes: read lazily, written by splicing.
//
// The bytes that doc_index reads must stay until the document is indexed again or is no
// longer used. Memory is kept from document to document. A document has one user
// at a time. Nothing here knows a VM.

#ifndef PERIGEE_DOCUMENT_H
#define PERIGEE_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

enum {
	DOC_MAX_DEPTH = 512,     // objects and arrays within each other
	DOC_MAX_FIELDS = 1 << 15 // of a document
};

// Why a document is rejected. The numbers are those of report.Code.
typedef enum {
	DOC_OK,
	DOC_EMPTY,
	DOC_NOT_OBJECT,
	DOC_CUT_SHORT,
	DOC_WANT_KEY,
	DOC_WANT_COLON,
	DOC_WANT_COMMA,
	DOC_WANT_VALUE,
	DOC_BAD_NUMBER,
	DOC_BAD_ESCAPE,
	DOC_CONTROL,
	DOC_BAD_UTF8,
	DOC_TOO_DEEP,
	DOC_TRAILING,
	DOC_TOO_LARGE,
	DOC_BYTE_ORDER_MARK,
	DOC_STARTS_ARRAY,
	DOC_GZIP,
	DOC_TOO_MANY_FIELDS,
	// Errors of writes.
	DOC_NO_MEMORY,
	DOC_TOO_BIG,
	DOC_NO_INDEX,
	DOC_IS_ARRAY,
	DOC_IS_OBJECT
} doc_error;

typedef enum {
	DOC_MISSING,
	DOC_NULL,
	DOC_FALSE,
	DOC_TRUE,
	DOC_NUMBER,
	DOC_STRING,
	DOC_OBJECT,
	DOC_ARRAY,
	DOC_BIGNUM,  // only from doc_read: a number that no double holds exactly
	DOC_EXTERNAL // a value of the user's own, which the document knows by a number
} doc_kind;

enum {                   // doc_node.flags
	DOC_KEY_ESCAPED = 1, // the key holds backslashes
	DOC_ESCAPED = 2,     // the string holds backslashes
	DOC_UNQUOTED = 4,    // a written string, without quotes and escapes
	DOC_DOUBLE = 8,      // a written number, in num and not in text
	DOC_REMOVED = 16,    // of a field: it was removed
	DOC_REPLACED = 32,   // of a field: its value is node `other`
	DOC_DIRTY = 64,      // of a container: something in it was written
	DOC_LISTED = 128,    // of an array: its elements are those of `list`
	DOC_ENCODED = 256,   // of an added field: ,"key":value stands in one piece around key and text
	DOC_REPEATS = 512    // of a field: field `other` before it has the same key, see keys.h
};

typedef struct doc_list {
	uint32_t *at; // value nodes
	uint32_t len, cap;
} doc_list;

// One value. Nodes have the order of the text; the children of a container are the
// nodes up to `next`. A write changes only the flags of a node of the text, so that
// what a script holds on to keeps its meaning.
typedef struct doc_node {
	const char *key;  // without quotes; NULL outside objects
	const char *text; // the value as it is spelled
	uint32_t key_len, len;
	uint32_t next; // just past the last node of this value; of an added field, the next one
	uint32_t parent;
	uint32_t count;       // of children in the text; of DOC_EXTERNAL, its number
	uint32_t other;       // the new value of a field that is DOC_REPLACED; see DOC_REPEATS
	uint32_t first, last; // added fields of an object, 0 when there are none
	union {
		double num;
		doc_list *list;
		struct {
			uint32_t index, node;
		} last_read; // of an array: the element read last
	} u;
	union {
		struct {
			uint16_t flags;
			uint8_t kind;
		};
		uint32_t is; // both
	};
} doc_node;

typedef struct doc_block {
	uint64_t slash, control;
} doc_block;

// Successive documents mostly have the same keys in the same places, and a script looks
// them up with the same strings. A field slot remembers which field such a string found
// in a document of some shape.
typedef struct doc_field_slot {
	const char *key; // compared by address
	uint64_t shape;
	uint32_t field;
} doc_field_slot;

// A key slot holds a key that scripts write, as it is encoded.
enum {
	DOC_CACHED_KEY_MAX = 44
};
typedef struct doc_key_slot {
	const char *key; // compared by address
	uint32_t len;
	uint8_t hash;
	char text[DOC_CACHED_KEY_MAX + 4]; // ,"key":
} doc_key_slot;

enum {
	DOC_FIELD_SLOTS = 128, // slots of a document
	DOC_KEY_SLOTS = 64     // slots of a document
};

// The text of the preceding documents around their scalars, see template.h.
typedef struct doc_template {
	char *text; // what precedes each scalar, and what follows the last
	struct template_scalar *scalars;
	struct template_container *containers;
	uint32_t scalar_count, container_count;
	uint32_t tail;   // length of what follows the last scalar
	uint64_t number; // unique; 0: there is no template
	uint32_t streak; // successive documents of one shape
	int matches;     // the current document matches the template
} doc_template;

typedef struct doc_chunk {
	struct doc_chunk *next;
	size_t cap;
	char data[];
} doc_chunk;

// The index of keys, see keys.h.
typedef struct doc_key_entry {
	uint32_t hash, node; // node 0: the entry is free
} doc_key_entry;

typedef struct doc_keys {
	doc_key_entry *entries;
	uint32_t cap, used;
	uint32_t objects;  // objects before this node are in the index; 0: there is none
	uint64_t searched; // nodes that searches without the index have looked at
} doc_keys;

typedef struct doc_buf {
	char *data;
	size_t len, cap, max; // beyond max, writes return DOC_TOO_BIG
} doc_buf;

// The first members of a doc: the value that doc_read, doc_at or doc_step has found, and
// its node. Compiled scripts read them through FFI, which declares them from this macro too.
#define DOC_FOUND_MEMBERS \
	const char *str; \
	uint32_t str_len; \
	uint32_t got; \
	double num;

typedef struct doc {
	DOC_FOUND_MEMBERS

	doc_node *nodes;      // node 0 is the document
	uint8_t *hashes;      // of each node's key, one byte each,
	uint8_t *last_hashes; // and those of the preceding document
	uint32_t count, cap;
	uint32_t offset; // of the first wrong byte, after an error

	uint64_t shape;         // changes when the hashes differ from those of the preceding document
	uint64_t indexed_shape; // the shape that the next two describe
	uint64_t unique_hashes; // of the first 64 nodes, those whose hash no other node has
	uint64_t hashes_present[4]; // the set of hashes
	uint32_t last_count;        // nodes of the preceding document
	int same_shape;             // as the preceding document
	doc_field_slot field_slots[DOC_FIELD_SLOTS];
	doc_key_slot *key_slots; // DOC_KEY_SLOTS, or NULL before a key is written

	doc_keys keys;
	doc_template template;

	uint64_t removed; // of the first 64 nodes, those that are DOC_REMOVED,
	uint64_t changed; // and those that were written to
	uint64_t added;   // a bit for the hash of each added field

	uint64_t *quotes;  // of each 64 bytes,
	doc_block *blocks; // and their other special characters, if the text has any
	uint32_t block_cap;
	int special; // the text that was indexed last has backslashes or control characters
	doc_chunk *chunks, *chunk; // the arena: all chunks, the one in use
	size_t chunk_used;
	char *plain;            // the string or key without escapes that was read last,
	size_t plain_cap;       // and the room for it
	size_t written, max;    // bytes written since doc_index, and their limit
	size_t held;            // bytes of memory that the document has,
	size_t *used, used_max; // which are added to *used, if used is not NULL, up to used_max

	// encode_external writes the value that a DOC_EXTERNAL stands for. It may leave
	// by longjmp. `field` is then the field or element that is being written.
	int (*encode_external)(void *context, uint32_t number, doc_buf *out);
	void *context;
	uint32_t externals; // made since doc_index
	uint32_t field;
	uint32_t depth;  // objects and arrays around the value that is being encoded,
	uint32_t around; // and those of them outside of the document
} doc;

struct extractor; // see extract.h

// DOC_FUNCTIONS is the one list of the functions: X(result, name, parameters) declares
// doc_name, and adds it to doc_api.
#define DOC_FUNCTIONS(X) \
	/* Life cycle. */ \
	/* The memory of the document is added to *used, which may not exceed used_max; NULL for \
	 * neither. The caller may set d->used to NULL before it frees what that points to. */ \
	X(doc *, new, (size_t max_written, size_t * used, size_t used_max)) \
	X(void, free, (doc * d)) \
	/* Gives memory back after a large document, which must not be used any more. */ \
	X(void, trim, (doc * d)) \
\
	/* Room for more bytes, or an error. */ \
	X(int, buf_need, (doc_buf * b, size_t more)) \
	X(int, buf_add, (doc_buf * b, const char *data, size_t len)) \
\
	/* Reads a document. limit is the end of the memory that may be read, at or after \
	 * text + len. */ \
	X(int, index, (doc * d, const char *text, size_t len, const char *limit)) \
\
	/* Reading. These return a doc_kind and set got, and str or num for scalars. An \
	 * array's first element has index 1. */ \
	X(int, read, (doc * d, uint32_t object, const char *key, size_t len)) \
	X(int, at, (doc * d, uint32_t array, double index)) \
	X(int, value, (doc * d, uint32_t node)) \
	X(uint32_t, length, (const doc *d, uint32_t array)) \
	/* Finds the field after `field` (0: the first), sets str to its key and got to its \
	 * value, and returns it, or 0 at the end. */ \
	X(uint32_t, step, (doc * d, uint32_t object, uint32_t field)) \
	/* Returns the field, even one that was removed. */ \
	X(uint32_t, find, (doc * d, uint32_t object, const char *key, size_t len)) \
\
	/* Writing: make a value first, then put it. Makers return 0 when memory is exhausted. \
	 * The caller makes sure that a string is UTF-8. */ \
	X(uint32_t, number, (doc * d, double x)) \
	X(uint32_t, string, (doc * d, const char *s, size_t len)) \
	X(uint32_t, literal, (doc * d, int kind)) /* DOC_NULL, DOC_FALSE, DOC_TRUE */ \
	X(uint32_t, number_text, (doc * d, const char *s, size_t len)) /* a number as it is spelled */ \
	X(uint32_t, external, (doc * d)) /* its number is d->externals afterwards */ \
	X(uint32_t, parse, (doc * d, const char *text, size_t len, int *error)) \
	/* Putting a value returns DOC_TOO_DEEP where it would be nested deeper than DOC_MAX_DEPTH. */ \
	X(int, put, (doc * d, uint32_t object, const char *key, size_t len, uint32_t value)) \
	/* Make and put at once. They reject what is not JSON: a key or text that is not \
	 * UTF-8 with DOC_BAD_UTF8, a number that is not finite with DOC_BAD_NUMBER. */ \
	X(int, set_number, (doc * d, uint32_t object, const char *key, size_t len, double x)) \
	X(int, set_string, \
	    (doc * d, uint32_t object, const char *key, size_t len, const char *s, size_t n)) \
	X(int, set_literal, (doc * d, uint32_t object, const char *key, size_t len, int kind)) \
	X(int, put_at, (doc * d, uint32_t array, double index, uint32_t value)) \
	X(int, insert, (doc * d, uint32_t array, double index, uint32_t value)) \
	X(int, remove, (doc * d, uint32_t object, const char *key, size_t len)) \
	X(int, remove_at, (doc * d, uint32_t array, double index)) /* shifts the rest down */ \
\
	/* Writes a value that `depth` objects and arrays are around. */ \
	X(int, encode, (doc * d, uint32_t node, uint32_t depth, doc_buf * out)) \
\
	/* Text. */ \
	X(int, utf8, (const char *s, size_t len)) \
	X(int, quote, (doc_buf * out, const char *s, size_t len)) \
	X(int, put_number, (doc_buf * out, double x)) \
	/* Reads a well-formed number and tells whether a double holds it exactly. */ \
	X(int, exact, (const char *s, size_t len, double *x)) \
\
	/* Columns, see extract.h. */ \
	X(int, extract_begin, (struct extractor * x)) \
	X(int, extract_rows, \
	    (struct extractor * x, const char *data, const uint32_t *ends, uint32_t n)) \
	X(int, extract_event, \
	    (struct extractor * x, doc * d, const char *data, const uint32_t *ends, uint32_t n)) \
	X(int, extract_columns_only, \
	    (struct extractor * x, doc * d, const char *data, const uint32_t *ends, uint32_t n, \
	        size_t room))

#define DOC_DECLARE(result, name, parameters) result doc_##name parameters;
DOC_FUNCTIONS(DOC_DECLARE)

// A doc_api holds all functions, for code in C that is linked apart: the go command links
// the C code of each package before it knows that of another.
#define DOC_MEMBER(result, name, parameters) result(*name) parameters;
typedef struct doc_api {
	DOC_FUNCTIONS(DOC_MEMBER)
} doc_api;

const doc_api *doc_functions(void);

// Only for this package.
size_t doc_unescape(const char *s, size_t len, char *out); // out: len bytes
double doc_double(const char *s, size_t len);

#endif
