#include "merge.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards published and last_id
static row_merge *published;
static uint64_t last_id;

static void release(row_merge *merge) {
	for (uint64_t i = 0; merge->inputs && i < merge->input_count; i++) {
		duckdb_destroy_data_chunk(&merge->inputs[i].chunk);
		free(merge->inputs[i].texts);
		free(merge->inputs[i].valid);
	}
	free(merge->inputs);
	free(merge->is_text);
	free(merge);
}

row_merge *pes_merge_new(const duckdb_result *results, uint64_t count) {
	row_merge *merge = calloc(1, sizeof *merge);
	if (!merge) return NULL;
	duckdb_result first = results[0];
	merge->input_count = count;
	merge->column_count = duckdb_column_count(&first) - 1;
	merge->inputs = calloc(count, sizeof *merge->inputs);
	merge->is_text = calloc(merge->column_count + 1, sizeof *merge->is_text);
	int complete = merge->inputs && merge->is_text;
	for (uint64_t i = 0; complete && i < count; i++) {
		merge_input *input = &merge->inputs[i];
		input->result = results[i];
		input->texts = calloc(merge->column_count + 1, sizeof *input->texts);
		input->valid = calloc(merge->column_count + 1, sizeof *input->valid);
		complete = input->texts && input->valid;
	}
	if (!complete) {
		release(merge);
		return NULL;
	}
	for (uint64_t i = 0; i < merge->column_count; i++) {
		duckdb_logical_type type = duckdb_column_logical_type(&first, i);
		int id = duckdb_get_type_id(type);
		merge->is_text[i] = id == DUCKDB_TYPE_VARCHAR || id == DUCKDB_TYPE_BLOB;
		duckdb_destroy_logical_type(&type);
	}
	pthread_mutex_lock(&lock);
	merge->id = ++last_id;
	merge->next = published;
	published = merge;
	pthread_mutex_unlock(&lock);
	return merge;
}

void pes_merge_free(row_merge *merge) {
	pthread_mutex_lock(&lock);
	for (row_merge **at = &published; *at; at = &(*at)->next) {
		if (*at == merge) {
			*at = merge->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	release(merge);
}

static row_merge *find_merge(uint64_t id) {
	pthread_mutex_lock(&lock);
	row_merge *merge = published;
	while (merge && merge->id != id) merge = merge->next;
	pthread_mutex_unlock(&lock);
	return merge;
}

static void bind_merge(duckdb_bind_info info) {
	duckdb_value id = duckdb_bind_get_parameter(info, 0);
	row_merge *merge = find_merge((uint64_t)duckdb_get_int64(id));
	duckdb_destroy_value(&id);
	if (!merge) {
		duckdb_bind_set_error(info, "merged_rows: no such merge");
		return;
	}
	duckdb_result first = merge->inputs[0].result;
	for (uint64_t i = 0; i < merge->column_count; i++) {
		duckdb_logical_type type = duckdb_column_logical_type(&first, i);
		duckdb_bind_add_result_column(info, duckdb_column_name(&first, i), type);
		duckdb_destroy_logical_type(&type);
	}
	duckdb_bind_set_bind_data(info, merge, NULL);
}

static void begin_merge(duckdb_init_info info) { duckdb_init_set_max_threads(info, 1); }

static const char *text_of(const text_cell *cell) {
	return cell->inside.length > sizeof cell->inside.text ? cell->outside.text : cell->inside.text;
}

// is_before reports whether key a sorts before key b.
static int is_before(const text_cell *a, const text_cell *b) {
	uint32_t length = a->inside.length < b->inside.length ? a->inside.length : b->inside.length;
	int order = memcmp(text_of(a), text_of(b), length);
	return order ? order < 0 : a->inside.length < b->inside.length;
}

// text_bytes returns the bytes of text in the next row of an input.
static uint64_t text_bytes(const row_merge *merge, const merge_input *input) {
	uint64_t bytes = 0, row = input->next;
	for (uint64_t i = 0; i < merge->column_count; i++) {
		const uint64_t *valid = input->valid[i];
		if (input->texts[i] && (!valid || valid[row / 64] >> (row % 64) & 1))
			bytes += input->texts[i][row].inside.length;
	}
	return bytes;
}

// take_chunk installs a fetched chunk as the input's current chunk.
static void take_chunk(const row_merge *merge, merge_input *input) {
	input->rows = duckdb_data_chunk_get_size(input->chunk);
	input->next = 0;
	input->keys =
	    duckdb_vector_get_data(duckdb_data_chunk_get_vector(input->chunk, merge->column_count));
	for (uint64_t i = 0; i < merge->column_count; i++) {
		if (!merge->is_text[i]) continue;
		duckdb_vector vector = duckdb_data_chunk_get_vector(input->chunk, i);
		input->texts[i] = duckdb_vector_get_data(vector);
		input->valid[i] = duckdb_vector_get_validity(vector);
	}
}

// fetch_chunks fetches a chunk for each input that has consumed its current one. It returns an
// error of DuckDB, or NULL.
static const char *fetch_chunks(row_merge *merge) {
	for (uint64_t i = 0; i < merge->input_count; i++) {
		merge_input *input = &merge->inputs[i];
		while (!input->ended && input->next == input->rows) {
			duckdb_destroy_data_chunk(&input->chunk);
			input->chunk = duckdb_fetch_chunk(input->result);
			if (input->chunk) {
				take_chunk(merge, input);
				continue;
			}
			input->ended = 1;
			const char *error = duckdb_result_error(&input->result);
			if (error && *error) return error;
		}
		input->begin = input->next;
	}
	return NULL;
}

// least_input returns the input whose next row sorts first, or NULL if all inputs are exhausted.
static merge_input *least_input(row_merge *merge) {
	merge_input *least = NULL;
	const text_cell *least_key = NULL;
	for (uint64_t i = 0; i < merge->input_count; i++) {
		merge_input *input = &merge->inputs[i];
		if (input->ended) continue;
		const text_cell *key = &input->keys[input->next];
		if (!least || is_before(key, least_key)) {
			least = input;
			least_key = key;
		}
	}
	return least;
}

// choose_rows takes rows from the inputs in order until the chunk is full, an input has no more
// rows in memory, or the rows have much text. It sets from to the input index of each row.
static uint64_t choose_rows(row_merge *merge, uint32_t *from, uint64_t capacity) {
	uint64_t count = 0, bytes = 0;
	while (count < capacity && bytes < CHUNK_TEXT_BYTES) {
		merge_input *least = least_input(merge);
		if (!least) break;
		bytes += text_bytes(merge, least);
		from[count++] = (uint32_t)(least - merge->inputs);
		if (++least->next == least->rows) break;
	}
	return count;
}

static void copy_chosen(row_merge *merge, const uint32_t *from, uint64_t count, uint32_t *starts,
    duckdb_data_chunk output) {
	duckdb_selection_vector rows = duckdb_create_selection_vector(duckdb_vector_size());
	uint32_t *row = duckdb_selection_vector_get_data_ptr(rows);
	uint64_t filled = 0;
	for (uint64_t i = 0; i < merge->input_count; i++) { // the rows of each input, back to back
		merge_input *input = &merge->inputs[i];
		uint64_t taken = input->next - input->begin;
		starts[i] = (uint32_t)filled;
		if (taken == 0) continue;
		for (uint64_t j = 0; j < taken; j++) row[j] = (uint32_t)(input->begin + j);
		for (uint64_t c = 0; c < merge->column_count; c++)
			duckdb_vector_copy_sel(duckdb_data_chunk_get_vector(input->chunk, c),
			    duckdb_data_chunk_get_vector(output, c), rows, taken, 0, filled);
		filled += taken;
	}
	for (uint64_t i = 0; i < count; i++) // then in order
		row[i] = starts[from[i]]++;
	for (uint64_t c = 0; c < merge->column_count; c++)
		duckdb_slice_vector(duckdb_data_chunk_get_vector(output, c), rows, count);
	duckdb_destroy_selection_vector(rows);
}

static void read_merge(duckdb_function_info info, duckdb_data_chunk output) {
	row_merge *merge = duckdb_function_get_bind_data(info);
	const char *error = fetch_chunks(merge);
	if (error) {
		duckdb_function_set_error(info, error);
		return;
	}
	uint64_t capacity = duckdb_vector_size();
	uint32_t *from = malloc((capacity + merge->input_count) * sizeof *from);
	if (!from) {
		duckdb_function_set_error(info, "Out of Memory Error: merged_rows");
		return;
	}
	uint64_t count = choose_rows(merge, from, capacity);
	if (count > 0) copy_chosen(merge, from, count, from + capacity, output);
	duckdb_data_chunk_set_size(output, count);
	free(from);
}

int pes_merge_register(void *connection) {
	duckdb_table_function function = duckdb_create_table_function();
	duckdb_logical_type id = duckdb_create_logical_type(DUCKDB_TYPE_BIGINT);
	duckdb_table_function_set_name(function, "merged_rows");
	duckdb_table_function_add_parameter(function, id);
	duckdb_table_function_set_bind(function, bind_merge);
	duckdb_table_function_set_init(function, begin_merge);
	duckdb_table_function_set_function(function, read_merge);
	duckdb_state state = duckdb_register_table_function(connection, function);
	duckdb_destroy_logical_type(&id);
	duckdb_destroy_table_function(&function);
	return state == DuckDBSuccess;
}
