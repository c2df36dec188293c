#include "script.h"

#include <stddef.h>

#include "../duckdb/duckdb.h"

const char *pes_script_text(const void *cells, uint64_t row, uint32_t *length) {
	const char *cell = (const char *)cells + row * 16;
	*length = *(const uint32_t *)cell;
	return *length <= 12 ? cell + 4 : *(const char *const *)(cell + 8);
}

void pes_script_set(void *output, uint64_t row, const char *text, uint64_t length) {
	if (text) {
		duckdb_vector_assign_string_element_len(output, row, text, length);
		return;
	}
	duckdb_vector_ensure_validity_writable(output);
	duckdb_vector_get_validity(output)[row / 64] &= ~(UINT64_C(1) << (row % 64));
}

void pes_script_fail(void *info, const char *error) {
	duckdb_scalar_function_set_error(info, error);
}

static void call_script(duckdb_function_info info, duckdb_data_chunk input, duckdb_vector output) {
	idx_t rows = duckdb_data_chunk_get_size(input);
	if (rows == 0) return;
	const int64_t *database = duckdb_vector_get_data(duckdb_data_chunk_get_vector(input, 0));
	const int64_t *function = duckdb_vector_get_data(duckdb_data_chunk_get_vector(input, 1));
	duckdb_vector documents = duckdb_data_chunk_get_vector(input, 2);
	pes_script_call(database[0], function[0], rows, duckdb_vector_get_data(documents),
	    duckdb_vector_get_validity(documents), output, info);
}

int pes_script_register(void *connection) {
	duckdb_scalar_function function = duckdb_create_scalar_function();
	duckdb_logical_type number = duckdb_create_logical_type(DUCKDB_TYPE_BIGINT);
	duckdb_logical_type text = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR);
	duckdb_scalar_function_set_name(function, "script_value");
	duckdb_scalar_function_add_parameter(function, number);
	duckdb_scalar_function_add_parameter(function, number);
	duckdb_scalar_function_add_parameter(function, text);
	duckdb_scalar_function_set_return_type(function, text);
	duckdb_scalar_function_set_function(function, call_script);
	duckdb_state state = duckdb_register_scalar_function(connection, function);
	duckdb_destroy_logical_type(&number);
	duckdb_destroy_logical_type(&text);
	duckdb_destroy_scalar_function(&function);
	return state == DuckDBSuccess;
}
