#include "document.h"
#include "extract.h"

const doc_api *doc_functions(void) {
	static const doc_api api = {
		.new = doc_new, .free = doc_free, .buf_need = doc_buf_need, .buf_add = doc_buf_add,
		.index = doc_index, .read = doc_read, .at = doc_at, .value = doc_value,
		.length = doc_length, .step = doc_step, .find = doc_find,
		.number = doc_number, .string = doc_string, .literal = doc_literal,
		.spelled = doc_spelled, .foreign = doc_foreign, .copy = doc_copy, .adopt = doc_adopt,
		.set_number = doc_set_number, .set_string = doc_set_string, .set_literal = doc_set_literal,
		.put = doc_put, .put_at = doc_put_at, .insert = doc_insert,
		.remove = doc_remove, .remove_at = doc_remove_at,
		.encode = doc_encode, .utf8 = doc_utf8, .quote = doc_quote,
		.put_number = doc_put_number, .exact = doc_exact, 
		.extract_begin = extract_begin, .extract_rows = extract_rows, .extract_event = extract_event,
		.extract_bare = extract_bare,
	};
	return &api;
}
