package statement

import (
	"slices"
	"strings"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

// functionGroups lists the functions that queries may call. A listed function only computes,
// does not recurse into its arguments, and needs memory in proportion to them. For functions
// with results that grow faster, checkCall bounds the arguments. Functions that a later
// version of DuckDB adds are denied until they are listed.
var functionGroups = []catalog.FunctionGroup{
	{Name: "operators", Names: strings.Fields(`!__postfix !~~ !~~* % & && * ** + - ->> / // << <@ >> @ @> ^ ^@ | || ~ ~~ ~~* ~~~`)},
	{Name: "scalar functions", Names: strings.Fields(`abs acos acosh add age alias apply array_append array_cat array_concat array_contains array_distance array_distinct
	array_dot_product array_extract array_filter array_has array_has_all array_has_any array_indexof array_inner_product
	array_intersect array_length array_pop_back array_pop_front array_position array_prepend array_push_back
	array_push_front array_reverse array_reverse_sort array_slice array_sort array_to_json array_to_string array_transform
	array_unique array_value array_zip ascii asin asinh atan atan2 atanh bar base64 bin bit_count bit_length cardinality
	cbrt ceil ceiling century char_length character_length chr concat concat_ws constant_or_null contains cos cosh cot
	current_catalog current_database current_date current_localtime current_localtimestamp current_schema
	current_user date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc
	day dayname dayofmonth dayofweek dayofyear days_in_month decade decode degrees divide element_at encode ends_with
	enum_code enum_first enum_last enum_range epoch epoch_ms epoch_ns epoch_us era error even exp factorial fdiv filter flatten
	floor fmod format formatReadableDecimalSize formatReadableSize format_bytes from_base64 from_binary from_hex gamma gcd
	gen_random_uuid generate_series get_bit get_current_time get_current_timestamp greatest greatest_common_divisor hash
	hex hour ilike_escape instr isfinite isinf isnan isodow isoyear json json_array json_array_length json_exists
	json_extract json_extract_path json_extract_path_text json_extract_string json_keys json_object json_quote json_type
	json_valid json_value julian last_day lcase lcm least least_common_multiple left left_grapheme len length
	length_grapheme lgamma like_escape list_any_value list_append list_apply list_avg list_bit_and list_bit_or
	list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains list_count list_distance list_distinct
	list_dot_product list_element list_extract list_filter list_first list_has list_has_all list_has_any list_indexof
	list_inner_product list_intersect list_last list_max list_median list_min list_mode list_pack list_position
	list_prepend list_product list_reverse list_reverse_sort list_select list_slice list_sort list_stddev_pop
	list_stddev_samp list_sum list_transform list_unique list_value list_var_pop list_var_samp list_where list_zip ln log
	log10 log2 lower lpad ltrim make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz
	map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value
	map_from_entries map_keys map_values md5 md5_number microsecond millennium millisecond minute mod month monthname
	multiply nanosecond nextafter nfc_normalize normalized_interval not_ilike_escape not_like_escape now nullif
	octet_length ord parse_dirname parse_dirpath parse_filename parse_formatted_bytes parse_path pg_typeof pi position pow
	power prefix printf quarter radians random range regexp_escape regexp_extract regexp_extract_all regexp_full_match
	regexp_matches regexp_replace regexp_split_to_array repeat replace reverse right right_grapheme round round_even
	roundbankers row row_to_json rpad rtrim second set_bit sha1 sha256 sign signbit sin sinh split split_part sqrt
	starts_with str_split str_split_regex strftime string_split string_split_regex string_to_array strip_accents strlen
	strpos strptime struct_concat struct_contains struct_extract struct_extract_at struct_has struct_indexof struct_insert
	struct_keys struct_pack struct_position struct_update struct_values substr substring substring_grapheme subtract
	suffix switch tan tanh time_bucket timezone timezone_hour timezone_minute to_base to_base64 to_binary to_centuries
	to_days to_decades to_hex to_hours to_json to_microseconds to_millennia to_milliseconds to_minutes to_months
	to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp translate trim trunc try_strptime
	typeof ucase unbin unhex unicode union_extract union_tag union_value unnest unpivot_list upper url_decode url_encode
	user uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 version week weekday weekofyear xor year yearweek`)},
	{Name: "aggregate functions", Names: strings.Fields(`any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last arg_min
	arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bool_and bool_or corr count
	count_if count_star countif covar_pop covar_samp favg first fsum geomean geometric_mean group_concat histogram
	json_group_array json_group_object kahan_sum kurtosis kurtosis_pop last list listagg mad max max_by mean median min
	min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2
	regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop stddev_samp string_agg sum
	sum_no_overflow sumkahan var_pop var_samp variance wavg weighted_avg`)},
	{Name: "window functions", Names: strings.Fields(`cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank rank_dense row_number`)},
	{Name: "table functions", Names: strings.Fields(`duckdb_columns duckdb_constraints duckdb_databases duckdb_functions duckdb_indexes duckdb_keywords duckdb_memory
	duckdb_schemas duckdb_settings duckdb_tables duckdb_types duckdb_views generate_series json_each pg_timezone_names
	pragma_database_size pragma_show pragma_storage_info pragma_table_info pragma_version range summary unnest`)},
}

// tableFunctions are the functions that a query may read from, and scalarFunctions all others
// that it may call, in lower case. aggregateFunctions, including macros, may need rows other
// than the one that they are called for.
var (
	tableFunctions     = SetOf(append(functionGroups[4:5:5], catalog.FunctionGroup{Names: macroNames(true)}))
	scalarFunctions    = SetOf(append(functionGroups[:4:4], catalog.FunctionGroup{Names: macroNames(false)}))
	aggregateFunctions = SetOf(append(functionGroups[2:4:4], catalog.FunctionGroup{Names: macroNames(false)}))
)

// SetOf returns the names of groups in lower case.
func SetOf(groups []catalog.FunctionGroup) map[string]bool {
	all := map[string]bool{}
	for _, g := range groups {
		for _, name := range g.Names {
			all[strings.ToLower(name)] = true
		}
	}
	return all
}

// Allow permits statements to call a script function. Call it before the first Parse.
func Allow(name string) {
	name = strings.ToLower(name)
	scalarFunctions[name], volatileFunctions[name] = true, true // the script may change
}

// IsAggregate reports whether a function may need rows other than the one that it is called
// for.
func IsAggregate(name string) bool { return aggregateFunctions[strings.ToLower(name)] }

// Functions returns the functions that queries may call.
func Functions() []catalog.FunctionGroup {
	return append(slices.Clone(functionGroups), catalog.FunctionGroup{Name: "macros", Names: append(macroNames(true), macroNames(false)...)})
}
