// The part of DuckDB's C API that is used in addition to the Go bindings, with the declarations of
// DuckDB's header. The bindings link the library, but this package cannot include their header.
#ifndef PERIGEE_DUCKDB_H
#define PERIGEE_DUCKDB_H

#include <stdbool.h>
#include <stdint.h>

typedef uint64_t idx_t;
typedef enum {
	DuckDBSuccess = 0,
	DuckDBError = 1
} duckdb_state;

typedef struct handle *duckdb_connection;
typedef struct handle *duckdb_logical_type;
typedef struct handle *duckdb_value;
typedef struct handle *duckdb_vector;
typedef struct handle *duckdb_data_chunk;
typedef struct handle *duckdb_table_function;
typedef struct handle *duckdb_scalar_function;
typedef struct handle *duckdb_bind_info;
typedef struct handle *duckdb_init_info;
typedef struct handle *duckdb_function_info;
typedef struct handle *duckdb_arrow_options;
typedef struct handle *duckdb_error_data;
typedef struct handle *duckdb_selection_vector;

// A duckdb_result is six opaque words.
typedef struct {
	void *words[6];
} duckdb_result;

typedef void (*duckdb_delete_callback_t)(void *data);
typedef void (*duckdb_table_function_bind_t)(duckdb_bind_info info);
typedef void (*duckdb_table_function_init_t)(duckdb_init_info info);
typedef void (*duckdb_table_function_t)(duckdb_function_info info, duckdb_data_chunk output);

typedef void (*duckdb_scalar_function_t)(
    duckdb_function_info info, duckdb_data_chunk input, duckdb_vector output);

enum {
	DUCKDB_TYPE_BOOLEAN = 1,
	DUCKDB_TYPE_INTEGER = 4,
	DUCKDB_TYPE_BIGINT = 5,
	DUCKDB_TYPE_DOUBLE = 11,
	DUCKDB_TYPE_TIMESTAMP = 12,
	DUCKDB_TYPE_VARCHAR = 17,
	DUCKDB_TYPE_BLOB = 18,
	DUCKDB_TYPE_TIMESTAMP_NS = 22,
};

duckdb_logical_type duckdb_create_logical_type(int type);
void duckdb_logical_type_set_alias(duckdb_logical_type type, const char *alias);
void duckdb_destroy_logical_type(duckdb_logical_type *type);
int64_t duckdb_get_int64(duckdb_value value);
void duckdb_destroy_value(duckdb_value *value);

int duckdb_get_type_id(duckdb_logical_type type);

idx_t duckdb_column_count(duckdb_result *result);
const char *duckdb_column_name(duckdb_result *result, idx_t column);
duckdb_logical_type duckdb_column_logical_type(duckdb_result *result, idx_t column);
const char *duckdb_result_error(duckdb_result *result);
duckdb_data_chunk duckdb_fetch_chunk(duckdb_result result);
idx_t duckdb_data_chunk_get_size(duckdb_data_chunk chunk);
void duckdb_destroy_data_chunk(duckdb_data_chunk *chunk);

idx_t duckdb_vector_size(void);
duckdb_vector duckdb_data_chunk_get_vector(duckdb_data_chunk chunk, idx_t column);
void duckdb_data_chunk_set_size(duckdb_data_chunk chunk, idx_t size);
void *duckdb_vector_get_data(duckdb_vector vector);
void duckdb_vector_ensure_validity_writable(duckdb_vector vector);
uint64_t *duckdb_vector_get_validity(duckdb_vector vector);
void duckdb_vector_assign_string_element_len(
    duckdb_vector vector, idx_t row, const char *text, idx_t length);
void duckdb_vector_copy_sel(duckdb_vector from, duckdb_vector to, duckdb_selection_vector rows,
    idx_t end, idx_t begin, idx_t at);
void duckdb_slice_vector(duckdb_vector vector, duckdb_selection_vector rows, idx_t count);
duckdb_selection_vector duckdb_create_selection_vector(idx_t size);
void duckdb_destroy_selection_vector(duckdb_selection_vector rows);
uint32_t *duckdb_selection_vector_get_data_ptr(duckdb_selection_vector rows);

duckdb_table_function duckdb_create_table_function(void);
void duckdb_destroy_table_function(duckdb_table_function *function);
void duckdb_table_function_set_name(duckdb_table_function function, const char *name);
void duckdb_table_function_add_parameter(duckdb_table_function function, duckdb_logical_type type);
void duckdb_table_function_set_bind(
    duckdb_table_function function, duckdb_table_function_bind_t bind);
void duckdb_table_function_set_init(
    duckdb_table_function function, duckdb_table_function_init_t init);
void duckdb_table_function_set_local_init(
    duckdb_table_function function, duckdb_table_function_init_t init);
void duckdb_table_function_set_function(
    duckdb_table_function function, duckdb_table_function_t call);
void duckdb_table_function_supports_projection_pushdown(
    duckdb_table_function function, bool pushdown);
duckdb_state duckdb_register_table_function(
    duckdb_connection connection, duckdb_table_function function);
duckdb_value duckdb_bind_get_parameter(duckdb_bind_info info, idx_t index);
void duckdb_bind_add_result_column(
    duckdb_bind_info info, const char *name, duckdb_logical_type type);
void duckdb_bind_set_bind_data(duckdb_bind_info info, void *data, duckdb_delete_callback_t destroy);
void duckdb_bind_set_cardinality(duckdb_bind_info info, idx_t cardinality, bool is_exact);
void duckdb_bind_set_error(duckdb_bind_info info, const char *error);
void *duckdb_init_get_bind_data(duckdb_init_info info);
void duckdb_init_set_init_data(duckdb_init_info info, void *data, duckdb_delete_callback_t destroy);
idx_t duckdb_init_get_column_count(duckdb_init_info info);
idx_t duckdb_init_get_column_index(duckdb_init_info info, idx_t column);
void duckdb_init_set_max_threads(duckdb_init_info info, idx_t max);
void duckdb_init_set_error(duckdb_init_info info, const char *error);
void *duckdb_function_get_bind_data(duckdb_function_info info);
void *duckdb_function_get_init_data(duckdb_function_info info);
void *duckdb_function_get_local_init_data(duckdb_function_info info);
void duckdb_function_set_error(duckdb_function_info info, const char *error);

duckdb_scalar_function duckdb_create_scalar_function(void);
void duckdb_destroy_scalar_function(duckdb_scalar_function *function);
void duckdb_scalar_function_set_name(duckdb_scalar_function function, const char *name);
void duckdb_scalar_function_add_parameter(
    duckdb_scalar_function function, duckdb_logical_type type);
void duckdb_scalar_function_set_return_type(
    duckdb_scalar_function function, duckdb_logical_type type);
void duckdb_scalar_function_set_function(
    duckdb_scalar_function function, duckdb_scalar_function_t call);
duckdb_state duckdb_register_scalar_function(
    duckdb_connection connection, duckdb_scalar_function function);
void duckdb_scalar_function_set_error(duckdb_function_info info, const char *error);

duckdb_error_data duckdb_to_arrow_schema(duckdb_arrow_options options, duckdb_logical_type *types,
    const char **names, idx_t count, void *schema);
duckdb_error_data duckdb_data_chunk_to_arrow(
    duckdb_arrow_options options, duckdb_data_chunk chunk, void *array);
bool duckdb_error_data_has_error(duckdb_error_data error);
const char *duckdb_error_data_message(duckdb_error_data error);
void duckdb_destroy_error_data(duckdb_error_data *error);

#endif
