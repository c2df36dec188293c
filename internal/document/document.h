// A JSON document as an index over its bytes. Values are read lazily; writes are spliced in.
//
// The bytes passed to doc_index must stay until the document is indexed again or no longer used. A
// document keeps its memory for the next one. Only one thread at a time may use a document. This
// code does not depend on a VM.

#ifndef PERIGEE_DOCUMENT_H
#define PERIGEE_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

enum {
	DOC_MAX_DEPTH = 512,     // nested objects and arrays
	DOC_MAX_FIELDS = 1 << 15 // fields per document
};

// Why a document is invalid. The numbers are those of report.Code.
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
	// Errors of writes
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
	DOC_BIGNUM,  // only from doc_read: a number that a double cannot represent exactly
	DOC_EXTERNAL // a value of the caller, which the document identifies by a number
} doc_kind;

enum {                   // doc_node.flags
	DOC_KEY_ESCAPED = 1, // the key has backslashes
	DOC_ESCAPED = 2,     // the string has backslashes
	DOC_UNQUOTED = 4,    // a written string, without quotes and escapes
	DOC_DOUBLE = 8,      // a written number, in num instead of text
	DOC_REMOVED = 16,    // field: it was removed
	DOC_REPLACED = 32,   // field: its value is node `other`
	DOC_DIRTY = 64,      // container: it, or something in it, was written
	DOC_LISTED = 128,    // array: its elements are those of `list`
	DOC_ENCODED = 256,   // added field: ,"key":value is contiguous, around key and text
	DOC_REPEATS = 512    // field: the earlier field `other` has the same key, see keys.h
};

typedef struct doc_list {
	uint32_t *at; // value nodes
	uint32_t len, cap;
} doc_list;

// One value. Nodes are in the order of the text; the children of a container are the nodes up to
// `next`. A write changes only the flags of a node of the text, so that a script's references to
// nodes stay valid.
typedef struct doc_node {
	const char *key;  // without quotes; NULL outside objects
	const char *text; // the value's bytes
	uint32_t key_len, len;
	uint32_t next; // just after the last node of this value; added field: the next added one
	uint32_t parent;
	uint32_t count;       // number of children in the text; DOC_EXTERNAL: its number
	uint32_t other;       // DOC_REPLACED: the new value; see also DOC_REPEATS
	uint32_t first, last; // object: its added fields, 0 if there are none
	union {
		double num;
		doc_list *list;
		struct {
			uint32_t index, node;
		} last_read; // array: the element read last
	} u;
	union {
		struct {
			uint16_t flags;
			uint8_t kind;
		};
		uint32_t is; // kind and flags
	};
} doc_node;

typedef struct doc_block {
	uint64_t slash, control;
} doc_block;

// Successive documents mostly have the same keys at the same positions, and a script looks them up
// with the same strings. A field slot caches the field that such a string found in documents of one
// shape.
typedef struct doc_field_slot {
	const char *key; // compared by address
	uint64_t shape;
	uint32_t field;
} doc_field_slot;

// A key slot caches the encoding of a key that scripts write.
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

// A template: the text of the preceding documents around their scalars, see template.h.
typedef struct doc_template {
	char *text; // the text before each scalar, and after the last one
	struct template_scalar *scalars;
	struct template_container *containers;
	uint32_t scalar_count, container_count;
	uint32_t tail;   // length of the text after the last scalar
	uint64_t number; // unique; 0: there is no template
	uint32_t streak; // number of successive documents of one shape
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
	uint32_t objects;  // the index covers objects before this node; 0: no index
	uint64_t searched; // nodes visited by searches without the index
} doc_keys;

typedef struct doc_buf {
	char *data;
	size_t len, cap, max; // beyond max, writes return DOC_TOO_BIG
} doc_buf;

// The first members of a doc: the value found by doc_read, doc_at or doc_step, and its node. This
// macro also declares them for FFI, through which compiled scripts read them.
#define DOC_FOUND_MEMBERS \
	const char *str; \
	uint32_t str_len; \
	uint32_t got; \
	double num;

typedef struct doc {
	DOC_FOUND_MEMBERS

	doc_node *nodes;      // node 0 is the document
	uint8_t *hashes;      // of each node's key, one byte each
	uint8_t *last_hashes; // the same for the preceding document
	uint32_t count, cap;
	uint32_t offset; // after an error: of the first invalid byte

	uint64_t shape;             // changes when the hashes differ from the preceding document's
	uint64_t indexed_shape;     // the shape that the next two fields describe
	uint64_t unique_hashes;     // bit set of the first 64 nodes: no other node has the same hash
	uint64_t hashes_present[4]; // the set of all hashes
	uint32_t last_count;        // nodes of the preceding document
	int same_shape;             // as the preceding document
	doc_field_slot field_slots[DOC_FIELD_SLOTS];
	doc_key_slot *key_slots; // DOC_KEY_SLOTS of them; NULL until a key is written

	doc_keys keys;
	doc_template template;

	uint64_t removed; // bit set of the first 64 nodes: DOC_REMOVED
	uint64_t changed; // bit set of the first 64 nodes: written to
	uint64_t added;   // a bit for the hash of each added field

	uint64_t *quotes;  // bit set of each 64 bytes of text
	doc_block *blocks; // their other special characters, if the text has any
	uint32_t block_cap;
	int special;               // the current text has backslashes or control characters
	doc_chunk *chunks, *chunk; // the arena: all chunks, and the one in use
	size_t chunk_used;
	char *plain; // buffer for the last string or key read, without escapes
	size_t plain_cap;
	size_t written, max;    // bytes written since doc_index, and their limit
	size_t held;            // memory of the document in bytes; added to *used
	size_t *used, used_max; // total memory, and its limit; NULL: none

	// encode_external encodes a DOC_EXTERNAL value. It may exit by longjmp; `field` is then the
	// field or element being written.
	int (*encode_external)(void *context, uint32_t number, doc_buf *out);
	void *context;
	uint32_t externals; // number created since doc_index
	uint32_t field;
	uint32_t depth;  // objects and arrays around the value being encoded
	uint32_t around; // those of them outside of the document
} doc;

struct extractor; // see extract.h

// DOC_FUNCTIONS lists all functions: X(result, name, parameters) declares doc_name, and adds it to
// doc_api.
#define DOC_FUNCTIONS(X) \
	/* Life cycle */ \
	/* The document's memory is added to *used, which must not exceed used_max; NULL for \
	 * neither. The caller may set d->used to NULL before it frees *used. */ \
	X(doc *, new, (size_t max_written, size_t * used, size_t used_max)) \
	X(void, free, (doc * d)) \
	/* Frees the memory of a large document, which must not be used any more. */ \
	X(void, trim, (doc * d)) \
\
	/* Makes space for more bytes, or returns an error. */ \
	X(int, buf_need, (doc_buf * b, size_t more)) \
	X(int, buf_add, (doc_buf * b, const char *data, size_t len)) \
\
	/* Indexes a document. limit is the end of readable memory, at or after \
	 * text + len. */ \
	X(int, index, (doc * d, const char *text, size_t len, const char *limit)) \
\
	/* Reading. These return a doc_kind and set got, and str or num for scalars. \
	 * Array indices start at 1. */ \
	X(int, read, (doc * d, uint32_t object, const char *key, size_t len)) \
	X(int, at, (doc * d, uint32_t array, double index)) \
	X(int, value, (doc * d, uint32_t node)) \
	X(uint32_t, length, (const doc *d, uint32_t array)) \
	/* Finds the field after `field` (0: the first), sets str to its key and got to its \
	 * value, and returns it, or 0 at the end. */ \
	X(uint32_t, step, (doc * d, uint32_t object, uint32_t field)) \
	/* Returns the field, even if it was removed. */ \
	X(uint32_t, find, (doc * d, uint32_t object, const char *key, size_t len)) \
\
	/* Writing: create a value, then put it. The first group returns 0 if memory is exhausted. \
	 * The caller must make sure that strings are UTF-8. */ \
	X(uint32_t, number, (doc * d, double x)) \
	X(uint32_t, string, (doc * d, const char *s, size_t len)) \
	X(uint32_t, literal, (doc * d, int kind)) /* DOC_NULL, DOC_FALSE, DOC_TRUE */ \
	X(uint32_t, number_text, (doc * d, const char *s, size_t len)) /* keeps a number's spelling */ \
	X(uint32_t, external, (doc * d)) /* its number is the new d->externals */ \
	X(uint32_t, parse, (doc * d, const char *text, size_t len, int *error)) \
	/* Putting a value returns DOC_TOO_DEEP if it would be nested deeper than DOC_MAX_DEPTH. */ \
	X(int, put, (doc * d, uint32_t object, const char *key, size_t len, uint32_t value)) \
	/* Create and put in one call. They reject invalid JSON: a key or text that is not \
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
	/* Encodes a value that is nested in `depth` objects and arrays. */ \
	X(int, encode, (doc * d, uint32_t node, uint32_t depth, doc_buf * out)) \
\
	/* Text */ \
	X(int, utf8, (const char *s, size_t len)) \
	X(int, quote, (doc_buf * out, const char *s, size_t len)) \
	X(int, put_number, (doc_buf * out, double x)) \
	/* Parses a well-formed number; 1 if a double represents it exactly. */ \
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

// A doc_api is a table of all functions, for C code in other packages: the go command links the C
// code of each package separately.
#define DOC_MEMBER(result, name, parameters) result(*name) parameters;
typedef struct doc_api {
	DOC_FUNCTIONS(DOC_MEMBER)
} doc_api;

const doc_api *doc_functions(void);

// Only for this package.
size_t doc_unescape(const char *s, size_t len, char *out); // out must hold len bytes
double doc_double(const char *s, size_t len);

#endif
