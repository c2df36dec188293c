// scan.c: the scan by itself, without DuckDB, for a build with sanitizers. scan_test.go builds
// and runs it. A vector has room for its rows and no more, and so has what it is read from.
#include "../scan.c"

#include <stdio.h>

enum { CHUNK = 128, FRAMES = 8, KINDS = 9 };

static const uint64_t frame_rows[FRAMES] = {1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 60, 7, CHUNK};
static const int32_t kinds[KINDS] = {SCAN_BOOL, SCAN_INT32, SCAN_INT64, SCAN_FLOAT64, SCAN_STRING, SCAN_TIMESTAMP, SCAN_JSON, SCAN_TIMESTAMP_NS, SCAN_PLACE};

// The part of DuckDB that a scan reads with. A chunk is an array of vectors.
struct handle {
	void *data;
	uint64_t *validity;
};

static log_scan *scan;
static scan_state *state;
static scan_cursor cursor;
static uint64_t chunk_rows;

void *duckdb_function_get_bind_data(duckdb_function_info info) { return (void)info, scan; }
void *duckdb_function_get_init_data(duckdb_function_info info) { return (void)info, state; }
void *duckdb_function_get_local_init_data(duckdb_function_info info) { return (void)info, &cursor; }
idx_t duckdb_vector_size(void) { return CHUNK; }
duckdb_vector duckdb_data_chunk_get_vector(duckdb_data_chunk chunk, idx_t column) { return &chunk[column]; }
void duckdb_data_chunk_set_size(duckdb_data_chunk chunk, idx_t size) { (void)chunk, chunk_rows = size; }
void *duckdb_vector_get_data(duckdb_vector vector) { return vector->data; }
uint64_t *duckdb_vector_get_validity(duckdb_vector vector) { return vector->validity; }
void duckdb_vector_ensure_validity_writable(duckdb_vector vector) {
	if (!vector->validity)
		vector->validity = memset(malloc(CHUNK / 8), 0xff, CHUNK / 8);
}

static bool is_text(int32_t kind) { return kind == SCAN_STRING || kind == SCAN_JSON; }
static bool is_absent(uint64_t frame, uint64_t column) { return frame % 3 == 2 && column % 2 == 0; }
static bool is_null(uint64_t frame, uint64_t column, uint64_t row) {
	return is_absent(frame, column) || (frame % 2 && (row + column) % 5 == 0);
}
static int64_t number_of(int32_t kind, uint64_t row) { return kind == SCAN_BOOL ? row % 2 == 0 : 1000 + (int64_t)row; }

static uint64_t size_of(int32_t kind) {
	switch (kind) {
	case SCAN_BOOL: return sizeof(bool);
	case SCAN_INT32: return sizeof(int32_t);
	}
	return is_text(kind) ? sizeof(text_cell) : sizeof(int64_t);
}

static scan_vector make_vector(uint64_t frame, uint64_t column) {
	uint64_t rows = frame_rows[frame];
	if (is_absent(frame, column) || kinds[column] == SCAN_PLACE)
		return (scan_vector){0};
	uint8_t *nulls = frame % 2 ? malloc(rows) : NULL;
	for (uint64_t row = 0; nulls && row < rows; row++)
		nulls[row] = is_null(frame, column, row);
	if (!is_text(kinds[column])) {
		int64_t *numbers = malloc(rows * sizeof *numbers);
		for (uint64_t row = 0; row < rows; row++)
			numbers[row] = number_of(kinds[column], row);
		return (scan_vector){.values = numbers, .nulls = nulls};
	}
	uint32_t *ends = malloc(rows * sizeof *ends), end = 0;
	for (uint64_t row = 0; row < rows; row++)
		ends[row] = end += row % 20;
	return (scan_vector){.values = memset(malloc(end + !end), 'a', end), .ends = ends, .nulls = nulls};
}

// holds reports whether a row of a chunk has what the row of a frame has.
static bool holds(const struct handle *vector, uint64_t column, uint64_t at, uint64_t frame, uint64_t row) {
	int32_t kind = kinds[column];
	if (kind == SCAN_PLACE)
		return ((const uint64_t *)vector->data)[at] == (frame << 32 | row);
	bool valid = !vector->validity || vector->validity[at / 64] >> (at % 64) & 1;
	if (!valid || is_null(frame, column, row))
		return !valid && is_null(frame, column, row);
	if (is_text(kind))
		return ((const text_cell *)vector->data)[at].inside.length == row % 20;
	if (kind == SCAN_BOOL)
		return ((const bool *)vector->data)[at] == number_of(kind, row);
	if (kind == SCAN_INT32)
		return ((const int32_t *)vector->data)[at] == number_of(kind, row);
	return ((const int64_t *)vector->data)[at] == number_of(kind, row);
}

// read_all reads a chunk after another, and compares it with the rows at places.
static void read_all(const scan_place *places, uint64_t columns, uint64_t count) {
	uint64_t seen = 0;
	for (;;) {
		struct handle chunk[KINDS] = {0};
		for (uint64_t i = 0; i < columns; i++)
			chunk[i].data = malloc(CHUNK * size_of(kinds[i]));
		read_scan(NULL, chunk);
		for (uint64_t at = 0; at < chunk_rows; at++, seen++) {
			for (uint64_t i = 0; i < columns; i++) {
				if (seen >= count || !holds(&chunk[i], i, at, places[seen].frame, places[seen].row)) {
					fprintf(stderr, "row %lu of %lu, kind %d: another value\n", (unsigned long)seen, (unsigned long)count, kinds[i]);
					exit(1);
				}
			}
		}
		for (uint64_t i = 0; i < columns; i++) {
			free(chunk[i].data);
			free(chunk[i].validity);
		}
		if (!chunk_rows)
			break;
	}
	if (seen != count) {
		fprintf(stderr, "%lu rows, want %lu\n", (unsigned long)seen, (unsigned long)count);
		exit(1);
	}
}

// read_other reads numbers as texts and texts as numbers, of a frame that no check has refused:
// all rows are NULL, and no vector is read beyond its end.
static void read_other(void) {
	enum { ROWS = 3 };
	int64_t numbers[ROWS] = {1, 2, 3};
	uint32_t ends[ROWS] = {1, 2, 3};
	char texts[ROWS] = "abc";
	const scan_vector vectors[] = {{.values = numbers}, {.values = texts, .ends = ends}, {.values = texts, .ends = ends}};
	const scan_column columns[] = {{"", SCAN_STRING}, {"", SCAN_INT64}, {"", SCAN_BOOL}};
	const scan_frame frame = {.rows = ROWS, .vectors = vectors};
	const uint64_t groups[] = {0, 1};
	const scan_place places[ROWS] = {{0, 2}, {0, 0}, {0, 1}};
	log_scan other = {.column_count = 3, .columns = columns, .rows = ROWS, .group_count = 1, .groups = groups, .frames = &frame};
	for (int ordered = 0; ordered < 2; ordered++) {
		other.order = ordered ? places : NULL;
		other.order_count = ROWS;
		scan = &other;
		state->next_group = 0;
		state->column_count = 3;
		cursor = (scan_cursor){0};
		struct handle chunk[3] = {{0}};
		for (uint64_t i = 0; i < 3; i++)
			chunk[i].data = malloc(CHUNK * sizeof(text_cell));
		read_scan(NULL, chunk);
		for (uint64_t i = 0; i < 3; i++) {
			if (chunk_rows != ROWS || !chunk[i].validity || chunk[i].validity[0] & 7) {
				fprintf(stderr, "column %lu of another layout is not NULL\n", (unsigned long)i);
				exit(1);
			}
			free(chunk[i].data);
			free(chunk[i].validity);
		}
	}
}

int main(void) {
	scan_column columns[KINDS];
	static scan_vector vectors[FRAMES][KINDS];
	static scan_place places[8 * CHUNK];
	scan_frame frames[FRAMES];
	uint64_t count = 0;
	for (uint64_t i = 0; i < KINDS; i++)
		columns[i] = (scan_column){.name = "", .kind = kinds[i]};
	for (uint32_t frame = 0; frame < FRAMES; frame++) {
		for (uint64_t i = 0; i < KINDS; i++)
			vectors[frame][i] = make_vector(frame, i);
		frames[frame] = (scan_frame){.rows = frame_rows[frame], .vectors = vectors[frame]};
		for (uint32_t row = 0; row < frame_rows[frame]; row++)
			places[count++] = (scan_place){.frame = frame, .row = row};
	}
	const uint64_t groups[] = {0, 1, 5, FRAMES};
	log_scan all = {.column_count = KINDS, .columns = columns, .rows = count, .group_count = 3, .groups = groups, .frames = frames};
	scan = &all;
	state = calloc(1, sizeof *state + KINDS * sizeof state->columns[0]);
	state->column_count = KINDS;
	for (uint64_t i = 0; i < KINDS; i++)
		state->columns[i] = i;
	read_all(places, KINDS, count);

	// From the last row to the first. A place is a column of no ordered scan.
	for (uint64_t i = 0; i < count / 2; i++) {
		scan_place other = places[i];
		places[i] = places[count - 1 - i];
		places[count - 1 - i] = other;
	}
	all.order = places;
	all.order_count = count;
	state->column_count = KINDS - 1;
	cursor = (scan_cursor){0};
	read_all(places, KINDS - 1, count);
	read_other();
	return 0;
}
