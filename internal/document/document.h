// A JSON document as an index over its bytes: read lazily, written by splicing.
//
// The bytes that doc_index reads must stay until the document is indexed again
// or no longer used. Memory is kept from document to document. A document has
// one user at a time. Nothing here knows of a VM.

#ifndef PERIGEE_DOCUMENT_H
#define PERIGEE_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

enum { DOC_MAX_DEPTH = 512 };

// Why a document is refused. The numbers are those of report.Fault.
typedef enum {
	DOC_OK, DOC_EMPTY, DOC_NOT_OBJECT, DOC_CUT_SHORT, DOC_WANT_KEY, DOC_WANT_COLON,
	DOC_WANT_COMMA, DOC_WANT_VALUE, DOC_BAD_NUMBER, DOC_BAD_ESCAPE, DOC_CONTROL,
	DOC_BAD_UTF8, DOC_TOO_DEEP, DOC_TRAILING, DOC_TOO_LARGE,
	DOC_BYTE_ORDER_MARK, DOC_STARTS_ARRAY, DOC_GZIP,
	// Refusals of writes.
	DOC_NO_MEMORY, DOC_TOO_BIG, DOC_NO_INDEX, DOC_IS_ARRAY, DOC_IS_OBJECT
} doc_fault;

typedef enum {
	DOC_MISSING, DOC_NULL, DOC_FALSE, DOC_TRUE, DOC_NUMBER, DOC_STRING, DOC_OBJECT, DOC_ARRAY,
	DOC_BIG,   // only from doc_read: a number that no double holds exactly
	DOC_FOREIGN // a value of the script's own, known by its number
} doc_kind;

enum { // doc_node.flags
	DOC_KEY_ESCAPED = 1,  // the key holds backslashes
	DOC_ESCAPED = 2,      // the string holds backslashes
	DOC_BARE = 4,         // a written string: no quotes around it, nothing escaped
	DOC_DOUBLE = 8,       // a written number: it is in num, not in text
	DOC_REMOVED = 16,     // of a field: it is gone
	DOC_REPLACED = 32,    // of a field: its value is node `other`
	DOC_DIRTY = 64,       // of a container: something in it was written
	DOC_LISTED = 128,     // of an array: its elements are those of `list`
	DOC_WHOLE = 256       // of an added field: ,"key":value stands in one piece around key and text
};

typedef struct doc_list {
	uint32_t *at; // value nodes
	uint32_t len, cap;
} doc_list;

// One value. Nodes stand in the order of the text; the children of a container
// are the nodes up to `next`. A node of the text is never changed by a write
// except in its flags, so that what a script holds on to keeps its meaning.
typedef struct doc_node {
	const char *key;   // without quotes; NULL outside objects
	const char *text;  // the value as it is spelled
	uint32_t key_len, len;
	uint32_t next;     // just past the last node of this value; of an added field, the next one
	uint32_t parent;
	uint32_t count;    // of children in the text; of DOC_FOREIGN, its number
	uint32_t other;    // the new value of a field that is DOC_REPLACED
	uint32_t first, last; // added fields of an object, 0 when there are none
	union {
		double num;
		doc_list *list;
		struct { uint32_t index, node; } near; // of an array: the element read last
	} u;
	union {
		struct {
			uint16_t flags;
			uint8_t kind;
		};
		uint32_t is; // both
	};
} doc_node;

typedef struct doc_block { uint64_t slash, control; } doc_block;

// Where a key was found in a document of some shape.
typedef struct doc_memo {
	const char *key; // its address: mostly it is the same string of a script
	uint64_t shape;
	uint32_t field;
} doc_memo;

// A key that is written, as it will stand in the text. Mostly document after document
// gets the same string of a script.
enum { DOC_NAME_MAX = 44 };
typedef struct doc_name {
	const char *key; // its address
	uint32_t len;
	uint8_t mark;    // its fingerprint
	char text[DOC_NAME_MAX + 4]; // ,"key":
} doc_name;

enum { DOC_MEMOS = 128, DOC_NAMES = 64 };

// The form of the documents before, see form.h.
typedef struct doc_form {
	char *text; // what stands before each scalar, and behind the last
	struct form_scalar *scalars;
	struct form_container *containers;
	uint32_t scalar_count, container_count;
	uint32_t tail;   // length of what stands behind the last scalar
	uint64_t number; // that no other has; 0: there is none
	uint32_t streak; // documents of one shape
	int holds;       // the nodes are those of a document of that form
} doc_form;

typedef struct doc_chunk {
	struct doc_chunk *next;
	size_t cap;
	char data[];
} doc_chunk;

typedef struct doc_buf {
	char *data;
	size_t len, cap, max; // max: what may be written before DOC_TOO_BIG
} doc_buf;

// The first members of a doc: the value that doc_read, doc_at or doc_step has found, and
// its node. Compiled scripts read them through FFI, so this macro declares them there too.
#define DOC_FOUND_MEMBERS \
	const char *str; \
	uint32_t str_len; \
	uint32_t got; \
	double num;

typedef struct doc {
	DOC_FOUND_MEMBERS

	doc_node *nodes; // node 0 is the document
	uint8_t *marks;  // a fingerprint of each node's key,
	uint8_t *before; // and those of the document before
	uint32_t count, cap;
	uint32_t offset; // of the first wrong byte, after a refusal

	// Documents one after the other mostly have the same keys in the same places.
	uint64_t shape;  // another number when the marks are not those of the document before
	uint64_t known;  // the shape that the next two are of
	uint64_t lone;   // of the first 64 nodes, those whose mark no other has
	uint64_t present[4]; // the marks that there are
	uint32_t places; // nodes of the document before
	int steady;      // the shape is that of the document before
	doc_memo memos[DOC_MEMOS];
	doc_name *names; // DOC_NAMES, or NULL before a key is written

	doc_form form;

	uint64_t removed; // of the first 64 nodes, those that are DOC_REMOVED,
	uint64_t changed; // and those that were written to
	uint64_t added;   // a bit for the mark of each added field

	uint64_t *quotes;  // of each 64 bytes,
	doc_block *blocks; // and what else there is, where somebody must be careful
	uint32_t block_cap;
	doc_chunk *chunks, *chunk; // the arena: all chunks, the one in use
	size_t used;               // of chunk
	size_t held, max;          // bytes written since doc_index, and their limit

	// encode_foreign writes the value that a DOC_FOREIGN stands for. It may leave
	// by longjmp. `field` is then the field or element that is being written.
	int (*encode_foreign)(void *context, uint32_t number, doc_buf *out);
	void *context;
	uint32_t foreigns; // made since doc_index
	uint32_t field;
	doc_buf scratch;
} doc;

// Life.
doc *doc_new(size_t max_written);
void doc_free(doc *d);
int doc_buf_need(doc_buf *b, size_t more); // room for more bytes, or a fault
int doc_buf_add(doc_buf *b, const char *data, size_t len);

// doc_index reads a document. limit is the end of the memory that may be read,
// at or after text + len.
int doc_index(doc *d, const char *text, size_t len, const char *limit);

// Reading. Each returns a doc_kind and sets got, and str or num for scalars.
int doc_read(doc *d, uint32_t object, const char *key, size_t len);
int doc_at(doc *d, uint32_t array, double index); // from 1
int doc_value(doc *d, uint32_t node);
uint32_t doc_length(const doc *d, uint32_t array);
// doc_step finds the field after `field` (0: the first), sets str to its key and
// got to its value, and returns it, or 0 at the end.
uint32_t doc_step(doc *d, uint32_t object, uint32_t field);
uint32_t doc_find(doc *d, uint32_t object, const char *key, size_t len); // the field, also if removed

// Writing: first make a value, then put it. Makers return 0 when memory ends.
uint32_t doc_number(doc *d, double x);
uint32_t doc_string(doc *d, const char *s, size_t len); // UTF-8 is the caller's duty
uint32_t doc_literal(doc *d, int kind);                 // DOC_NULL, DOC_FALSE, DOC_TRUE
uint32_t doc_spelled(doc *d, const char *s, size_t len); // a number as it is spelled
uint32_t doc_foreign(doc *d); // its number is d->foreigns after that
uint32_t doc_copy(doc *d, uint32_t node, int *fault);    // of a container as it is now
uint32_t doc_adopt(doc *d, const char *text, size_t len, int *fault); // parses JSON
int doc_put(doc *d, uint32_t object, const char *key, size_t len, uint32_t value);
// doc_set_… make and put at once. They refuse what is no JSON: a key or text that is
// not UTF-8 with DOC_BAD_UTF8, a number that is not finite with DOC_BAD_NUMBER.
int doc_set_number(doc *d, uint32_t object, const char *key, size_t len, double x);
int doc_set_string(doc *d, uint32_t object, const char *key, size_t len, const char *s, size_t n);
int doc_set_literal(doc *d, uint32_t object, const char *key, size_t len, int kind);
int doc_put_at(doc *d, uint32_t array, double index, uint32_t value);
int doc_insert(doc *d, uint32_t array, double index, uint32_t value);
int doc_remove(doc *d, uint32_t object, const char *key, size_t len);
int doc_remove_at(doc *d, uint32_t array, double index); // shifts the rest down

int doc_encode(doc *d, uint32_t node, doc_buf *out);

// Text.
int doc_utf8(const char *s, size_t len);
size_t doc_unescape(const char *s, size_t len, char *out); // out: len bytes
int doc_quote(doc_buf *out, const char *s, size_t len);
int doc_put_number(doc_buf *out, double x);
// doc_exact reads a number that is known to be well-formed and tells whether a
// double holds it.
int doc_exact(const char *s, size_t len, double *x);
double doc_double(const char *s, size_t len);

struct extractor; // see extract.h

// All of it as a value, for code that is linked apart and for FFI.
typedef struct doc_api {
	doc *(*new)(size_t);
	void (*free)(doc *);
	int (*buf_need)(doc_buf *, size_t);
	int (*buf_add)(doc_buf *, const char *, size_t);
	int (*index)(doc *, const char *, size_t, const char *);
	int (*read)(doc *, uint32_t, const char *, size_t);
	int (*at)(doc *, uint32_t, double);
	int (*value)(doc *, uint32_t);
	uint32_t (*length)(const doc *, uint32_t);
	uint32_t (*step)(doc *, uint32_t, uint32_t);
	uint32_t (*find)(doc *, uint32_t, const char *, size_t);
	uint32_t (*number)(doc *, double);
	uint32_t (*string)(doc *, const char *, size_t);
	uint32_t (*literal)(doc *, int);
	uint32_t (*spelled)(doc *, const char *, size_t);
	uint32_t (*foreign)(doc *);
	uint32_t (*copy)(doc *, uint32_t, int *);
	uint32_t (*adopt)(doc *, const char *, size_t, int *);
	int (*put)(doc *, uint32_t, const char *, size_t, uint32_t);
	int (*set_number)(doc *, uint32_t, const char *, size_t, double);
	int (*set_string)(doc *, uint32_t, const char *, size_t, const char *, size_t);
	int (*set_literal)(doc *, uint32_t, const char *, size_t, int);
	int (*put_at)(doc *, uint32_t, double, uint32_t);
	int (*insert)(doc *, uint32_t, double, uint32_t);
	int (*remove)(doc *, uint32_t, const char *, size_t);
	int (*remove_at)(doc *, uint32_t, double);
	int (*encode)(doc *, uint32_t, doc_buf *);
	int (*utf8)(const char *, size_t);
	int (*quote)(doc_buf *, const char *, size_t);
	int (*put_number)(doc_buf *, double);
	int (*exact)(const char *, size_t, double *);
	int (*extract_begin)(struct extractor *);
	int (*extract_rows)(struct extractor *, const char *, const uint32_t *, uint32_t);
	int (*extract_event)(struct extractor *, doc *, const char *, const uint32_t *, uint32_t);
	int (*extract_bare)(struct extractor *, doc *, const char *, const uint32_t *, uint32_t, size_t);
} doc_api;

const doc_api *doc_functions(void);

#endif
