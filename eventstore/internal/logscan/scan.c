#include "scan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../duckdb/duckdb.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards published
static log_scan *published;

void pes_scan_publish(log_scan *scan) {
	pthread_mutex_lock(&lock);
	scan->next = published;
	published = scan;
	pthread_mutex_unlock(&lock);
}

void pes_scan_withdraw(log_scan *scan) {
	pthread_mutex_lock(&lock);
	for (log_scan **at = &published; *at; at = &(*at)->next) {
		if (*at == scan) {
			*at = scan->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
}

static const log_scan *find_scan(uint64_t id) {
	pthread_mutex_lock(&lock);
	const log_scan *scan = published;
	while (scan && scan->id != id) scan = scan->next;
	pthread_mutex_unlock(&lock);
	return scan;
}

static duckdb_logical_type create_type(int32_t kind) {
	switch (kind) {
	case SCAN_BOOL: return duckdb_create_logical_type(DUCKDB_TYPE_BOOLEAN);
	case SCAN_INT32: return duckdb_create_logical_type(DUCKDB_TYPE_INTEGER);
	case SCAN_INT64:
	case SCAN_PLACE: return duckdb_create_logical_type(DUCKDB_TYPE_BIGINT);
	case SCAN_FLOAT64: return duckdb_create_logical_type(DUCKDB_TYPE_DOUBLE);
	case SCAN_STRING: return duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR);
	case SCAN_TIMESTAMP: return duckdb_create_logical_type(DUCKDB_TYPE_TIMESTAMP);
	case SCAN_TIMESTAMP_NS: return duckdb_create_logical_type(DUCKDB_TYPE_TIMESTAMP_NS);
	case SCAN_BYTES: return duckdb_create_logical_type(DUCKDB_TYPE_BLOB);
	}
	duckdb_logical_type type = duckdb_create_logical_type(DUCKDB_TYPE_VARCHAR);
	duckdb_logical_type_set_alias(type, "JSON");
	return type;
}

static void bind_scan(duckdb_bind_info info) {
	duckdb_value id = duckdb_bind_get_parameter(info, 0);
	const log_scan *scan = find_scan((uint64_t)duckdb_get_int64(id));
	duckdb_destroy_value(&id);
	if (!scan) {
		duckdb_bind_set_error(info, "log_frames: no such scan");
		return;
	}
	for (uint64_t i = 0; i < scan->column_count; i++) {
		duckdb_logical_type type = create_type(scan->columns[i].kind);
		duckdb_bind_add_result_column(info, scan->columns[i].name, type);
		duckdb_destroy_logical_type(&type);
	}
	duckdb_bind_set_cardinality(info, scan->rows, !scan->filter_count);
	duckdb_bind_set_bind_data(info, (void *)scan, NULL);
}

// A scan_state is shared by the threads of one scan in one statement.
typedef struct {
	_Atomic uint64_t next_group;
	uint64_t column_count;
	uint64_t columns[]; // indexes in the log_scan
} scan_state;

// A scan_cursor is the position of one thread.
typedef struct {
	uint64_t frame, end; // of the group
	uint64_t row;        // of the frame, or of the order
} scan_cursor;

static void begin_scan(duckdb_init_info info) {
	const log_scan *scan = duckdb_init_get_bind_data(info);
	uint64_t count = duckdb_init_get_column_count(info);
	scan_state *state = calloc(1, sizeof *state + count * sizeof state->columns[0]);
	if (!state) {
		duckdb_init_set_error(info, "Out of Memory Error: log_frames");
		return;
	}
	state->column_count = count;
	for (uint64_t i = 0; i < count; i++) state->columns[i] = duckdb_init_get_column_index(info, i);
	duckdb_init_set_max_threads(info, scan->group_count && !scan->order ? scan->group_count : 1);
	duckdb_init_set_init_data(info, state, free);
}

static void begin_thread(duckdb_init_info info) {
	scan_cursor *cursor = calloc(1, sizeof *cursor);
	if (!cursor) {
		duckdb_init_set_error(info, "Out of Memory Error: log_frames");
		return;
	}
	duckdb_init_set_init_data(info, cursor, free);
}

static inline text_cell cell_of(const char *text, uint32_t length) {
	text_cell cell = {.inside = {.length = length}};
	if (length > sizeof cell.inside.text) {
		memcpy(cell.outside.prefix, text, sizeof cell.outside.prefix);
		cell.outside.text = text;
	} else if (length >= 8) {
		memcpy(cell.inside.text, text, 8);
		memcpy(cell.inside.text + length - 4, text + length - 4, 4);
	} else if (length >= 4) {
		memcpy(cell.inside.text, text, 4);
		memcpy(cell.inside.text + length - 4, text + length - 4, 4);
	} else {
		for (uint32_t j = 0; j < length; j++) cell.inside.text[j] = text[j];
	}
	return cell;
}

static void copy_texts(text_cell *to, const scan_vector *from, uint64_t first, uint64_t rows) {
	const char *all = from->values;
	const uint32_t *ends = from->ends + first;
	uint32_t start = first ? ends[-1] : 0;
	for (uint64_t i = 0; i < rows; i++) {
		to[i] = cell_of(all + start, ends[i] - start);
		start = ends[i];
	}
}

static text_cell text_at(const scan_vector *from, uint64_t row) {
	uint32_t start = row ? from->ends[row - 1] : 0;
	return cell_of((const char *)from->values + start, from->ends[row] - start);
}

static void mark_nulls(duckdb_vector vector, const uint8_t *nulls, uint64_t at, uint64_t rows) {
	duckdb_vector_ensure_validity_writable(vector);
	uint64_t *validity = duckdb_vector_get_validity(vector);
	for (uint64_t i = 0; i < rows; i++) {
		if (!nulls || nulls[i]) validity[(at + i) / 64] &= ~(UINT64_C(1) << ((at + i) % 64));
	}
}

// is_text_kind reports whether values of a kind are texts with ends.
static bool is_text_kind(int32_t kind) {
	switch (kind) {
	case SCAN_BOOL:
	case SCAN_INT32:
	case SCAN_INT64:
	case SCAN_FLOAT64:
	case SCAN_TIMESTAMP:
	case SCAN_TIMESTAMP_NS:
	case SCAN_PLACE: return false;
	}
	return true;
}

// lacks_values reports whether a frame has no values of a kind for a column. The caller has
// compared the types: reading a vector of the other layout would overrun it.
static bool lacks_values(const scan_vector *from, int32_t kind) {
	return is_text_kind(kind) ? !from->ends : !from->values || from->ends;
}

static void copy_rows(duckdb_vector vector, uint64_t at, int32_t kind, const scan_vector *from,
    uint64_t first, uint64_t rows) {
	bool absent = lacks_values(from, kind);
	if (absent || from->nulls) mark_nulls(vector, absent ? NULL : from->nulls + first, at, rows);
	void *data = duckdb_vector_get_data(vector);
	const int64_t *numbers = absent ? NULL : (const int64_t *)from->values + first;
	switch (kind) {
	case SCAN_BOOL:
		for (uint64_t i = 0; i < rows; i++) ((bool *)data)[at + i] = !absent && numbers[i] != 0;
		return;
	case SCAN_INT32:
		for (uint64_t i = 0; i < rows; i++)
			((int32_t *)data)[at + i] = absent ? 0 : (int32_t)numbers[i];
		return;
	case SCAN_INT64:
	case SCAN_FLOAT64:
	case SCAN_TIMESTAMP:
	case SCAN_TIMESTAMP_NS:
		if (!absent) memcpy((int64_t *)data + at, numbers, rows * sizeof *numbers);
		return;
	}
	if (absent) memset((text_cell *)data + at, 0, rows * sizeof(text_cell));
	else copy_texts((text_cell *)data + at, from, first, rows);
}

static bool is_number_of(const scan_filter *filter, int64_t number) {
	for (uint64_t i = 0; i < filter->count; i++) {
		if (number == filter->numbers[i]) return true;
	}
	return false;
}

static bool is_text_of(const scan_filter *filter, const char *text, uint64_t length) {
	for (uint64_t i = 0; i < filter->count; i++) {
		if (length == filter->texts[i].length &&
		    (!length || !memcmp(text, filter->texts[i].text, length)))
			return true;
	}
	return false;
}

// is_wanted reports whether a row passes all filters. NULL equals nothing.
static bool is_wanted(const log_scan *scan, const scan_frame *frame, uint64_t row) {
	for (uint64_t i = 0; i < scan->filter_count; i++) {
		const scan_filter *filter = &scan->filters[i];
		const scan_vector *in = &frame->vectors[filter->column];
		if (in->nulls && in->nulls[row]) return false;
		if (filter->numbers) {
			if (!in->values || in->ends ||
			    !is_number_of(filter, ((const int64_t *)in->values)[row]))
				return false;
			continue;
		}
		if (!in->ends) return false;
		uint32_t start = row ? in->ends[row - 1] : 0;
		if (!is_text_of(filter, (const char *)in->values + start, in->ends[row] - start))
			return false;
	}
	return true;
}

// find_wanted returns the first row at or after row that passes the filters, or the number of rows.
static uint64_t find_wanted(const log_scan *scan, const scan_frame *frame, uint64_t row) {
	while (scan->filter_count && row < frame->rows && !is_wanted(scan, frame, row)) row++;
	return row;
}

// count_wanted returns the length of the run of rows that pass the filters, at most max. The first
// row passes.
static uint64_t count_wanted(
    const log_scan *scan, const scan_frame *frame, uint64_t row, uint64_t max) {
	if (!scan->filter_count) return max;
	uint64_t rows = 1;
	while (rows < max && is_wanted(scan, frame, row + rows)) rows++;
	return rows;
}

// next_rows finds the next frame that has rows for a thread, or returns NULL.
static const scan_frame *next_rows(const log_scan *scan, scan_state *state, scan_cursor *cursor) {
	for (;;) {
		for (; cursor->frame < cursor->end; cursor->frame++, cursor->row = 0) {
			const scan_frame *frame = &scan->frames[cursor->frame];
			cursor->row = find_wanted(scan, frame, cursor->row);
			if (cursor->row < frame->rows) return frame;
		}
		uint64_t group = atomic_fetch_add(&state->next_group, 1);
		if (group >= scan->group_count) return NULL;
		cursor->frame = scan->groups[group];
		cursor->end = scan->groups[group + 1];
		cursor->row = 0;
	}
}

// fill_rows copies consecutive rows of a frame into a chunk.
static void fill_rows(duckdb_data_chunk output, uint64_t at, const log_scan *scan,
    const scan_state *state, uint64_t frame, uint64_t first, uint64_t rows) {
	for (uint64_t i = 0; i < state->column_count; i++) {
		uint64_t column = state->columns[i];
		if (column >= scan->column_count) // DuckDB only counts the rows
			continue;
		duckdb_vector vector = duckdb_data_chunk_get_vector(output, i);
		if (scan->columns[column].kind == SCAN_PLACE) {
			for (uint64_t j = 0; j < rows; j++)
				((int64_t *)duckdb_vector_get_data(vector))[at + j] =
				    (int64_t)(frame << 32 | (first + j));
			continue;
		}
		copy_rows(vector, at, scan->columns[column].kind, &scan->frames[frame].vectors[column],
		    first, rows);
	}
}

// text_bytes returns the bytes of text in a row.
static uint64_t text_bytes(const log_scan *scan, scan_place place) {
	uint64_t bytes = 0;
	for (uint64_t i = 0; i < scan->column_count; i++) {
		const uint32_t *ends = scan->frames[place.frame].vectors[i].ends;
		if (ends) bytes += ends[place.row] - (place.row ? ends[place.row - 1] : 0);
	}
	return bytes;
}

// gather_column copies one column of scattered rows into a vector.
static void gather_column(duckdb_vector vector, const log_scan *scan, uint64_t column,
    const scan_place *places, uint64_t rows) {
	int32_t kind = scan->columns[column].kind;
	void *data = duckdb_vector_get_data(vector);
	uint64_t *validity = NULL;
	for (uint64_t i = 0; i < rows; i++) {
		const scan_vector *from = &scan->frames[places[i].frame].vectors[column];
		uint32_t row = places[i].row;
		bool absent = lacks_values(from, kind);
		if (absent || (from->nulls && from->nulls[row])) {
			if (!validity) {
				duckdb_vector_ensure_validity_writable(vector);
				validity = duckdb_vector_get_validity(vector);
			}
			validity[i / 64] &= ~(UINT64_C(1) << (i % 64));
		}
		int64_t number = 0;
		if (!absent && !is_text_kind(kind)) number = ((const int64_t *)from->values)[row];
		switch (kind) {
		case SCAN_BOOL: ((bool *)data)[i] = number != 0; break;
		case SCAN_INT32: ((int32_t *)data)[i] = (int32_t)number; break;
		case SCAN_INT64:
		case SCAN_FLOAT64:
		case SCAN_TIMESTAMP:
		case SCAN_TIMESTAMP_NS: ((int64_t *)data)[i] = number; break;
		default: ((text_cell *)data)[i] = absent ? (text_cell){0} : text_at(from, row);
		}
	}
}

// read_ordered reads the next rows of an ordered scan, column by column. Chunks of rows with long
// texts are short, because the reader holds the whole chunk in memory.
static void read_ordered(
    const log_scan *scan, const scan_state *state, scan_cursor *cursor, duckdb_data_chunk output) {
	const scan_place *places = scan->order + cursor->row;
	uint64_t rows = 0, bytes = 0, max_rows = scan->order_count - cursor->row;
	if (max_rows > duckdb_vector_size()) max_rows = duckdb_vector_size();
	while (rows < max_rows && bytes < CHUNK_TEXT_BYTES) bytes += text_bytes(scan, places[rows++]);
	for (uint64_t i = 0; i < state->column_count; i++) {
		uint64_t column = state->columns[i];
		if (column < scan->column_count) // otherwise DuckDB only counts the rows
			gather_column(duckdb_data_chunk_get_vector(output, i), scan, column, places, rows);
	}
	cursor->row += rows;
	duckdb_data_chunk_set_size(output, rows);
}

static void read_scan(duckdb_function_info info, duckdb_data_chunk output) {
	const log_scan *scan = duckdb_function_get_bind_data(info);
	scan_state *state = duckdb_function_get_init_data(info);
	scan_cursor *cursor = duckdb_function_get_local_init_data(info);
	if (scan->order) {
		read_ordered(scan, state, cursor, output);
		return;
	}
	uint64_t capacity = duckdb_vector_size(), filled = 0;
	while (filled < capacity) {
		const scan_frame *frame = next_rows(scan, state, cursor);
		if (!frame) break;
		uint64_t rows = frame->rows - cursor->row;
		if (rows > capacity - filled) rows = capacity - filled;
		rows = count_wanted(scan, frame, cursor->row, rows);
		fill_rows(output, filled, scan, state, (uint64_t)(frame - scan->frames), cursor->row, rows);
		cursor->row += rows;
		filled += rows;
	}
	duckdb_data_chunk_set_size(output, filled);
}

int pes_scan_register(void *connection) {
	duckdb_table_function function = duckdb_create_table_function();
	duckdb_logical_type id = duckdb_create_logical_type(DUCKDB_TYPE_BIGINT);
	duckdb_table_function_set_name(function, "log_frames");
	duckdb_table_function_add_parameter(function, id);
	duckdb_table_function_set_bind(function, bind_scan);
	duckdb_table_function_set_init(function, begin_scan);
	duckdb_table_function_set_local_init(function, begin_thread);
	duckdb_table_function_set_function(function, read_scan);
	duckdb_table_function_supports_projection_pushdown(function, true);
	duckdb_state state = duckdb_register_table_function(connection, function);
	duckdb_destroy_logical_type(&id);
	duckdb_destroy_table_function(&function);
	return state == DuckDBSuccess;
}
