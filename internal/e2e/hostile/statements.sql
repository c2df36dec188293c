-- One hostile statement a line. «text*count» repeats a text.

-- Deep JSON, which functions walk by recursion.
SELECT json_structure(repeat('[', 1000000) || repeat(']', 1000000))
SELECT json_structure(('«[*50000»' || '«]*50000»')::JSON)
SELECT json_structure((repeat('{"a":', 500000) || '1' || repeat('}', 500000))::JSON)
SELECT json_merge_patch(repeat('{"a":', 500000) || '1' || repeat('}', 500000), repeat('{"a":', 500000) || '2' || repeat('}', 500000))
SELECT json_merge_patch('«{"a":*40000»1«}*40000»', '«{"a":*40000»2«}*40000»')
SELECT json_pretty(repeat('[', 1000000) || repeat(']', 1000000))
SELECT json(repeat('[', 1000000) || repeat(']', 1000000))
SELECT json('«[*100000»«]*100000»')
SELECT CAST('«[*100000»«]*100000»' AS JSON)
SELECT CAST('«[*100000»«]*100000»' AS JSON)::VARCHAR
SELECT CAST(CAST('«[*100000»«]*100000»' AS JSON) AS INTEGER[])
SELECT '«[*100000»«]*100000»'::JSON = '«[*100000»«]*100000»'::JSON
SELECT json_valid('«[*200000»«]*200000»')
SELECT json_type('«[*200000»«]*200000»')
SELECT json_array_length('«[*200000»«]*200000»')
SELECT json_keys('«{"a":*100000»1«}*100000»')
SELECT json_extract('«[*100000»«]*100000»', '$«[0]*50000»')
SELECT json_extract('«{"a":*50000»1«}*50000»', '$«.a*50000»')
SELECT json_extract('«[*50000»«]*50000»', '$..x')
SELECT json_extract('«{"a":*5000»1«}*5000»', '$«.***500»')
SELECT count(*) FROM json_tree('«[*100000»«]*100000»')
SELECT count(*) FROM json_each('«[*100000»«]*100000»')
SELECT json_contains('«[*100000»«]*100000»', '«[*100000»«]*100000»')
SELECT json_contains('«{"a":*50000»1«}*50000»', '«{"a":*50000»2«}*50000»')
SELECT json_transform('«[*100000»«]*100000»', '["INTEGER"]')
SELECT json_transform('[]', '«[*5000»"INTEGER"«]*5000»')
SELECT json_transform('{}', '«{"a":*5000»"INTEGER"«}*5000»')
SELECT json_transform_strict('[]', '«[*100000»"INTEGER"«]*100000»')
SELECT from_json('[]', '«[*100000»"INTEGER"«]*100000»')
SELECT from_json_strict('[]', '«[*2000»"INTEGER"«]*2000»')
SELECT json_group_structure('«[*100000»«]*100000»')
SELECT json_group_array('«[*100000»«]*100000»'::JSON) FROM range(1000)
SELECT json_quote('«[*100000»«]*100000»')
SELECT to_json('«[*100000»«]*100000»'::JSON)
SELECT json_object('a', '«[*100000»«]*100000»'::JSON)
SELECT json_array('«[*100000»«]*100000»'::JSON)
SELECT json_exists('«[*100000»«]*100000»', '$')
SELECT json_value('«[*100000»«]*100000»', '$')
SELECT json_deserialize_sql('«[*100000»«]*100000»')
SELECT json_deserialize_sql(json_serialize_sql('SELECT 1')::JSON)
SELECT json_serialize_plan('SELECT «(*5000»1«)*5000»')
SELECT * FROM json_execute_serialized_sql('{"error":false,"statements":[{"node":{}}]}')
SELECT json_serialize_sql('SELECT «(*100000»1«)*100000»')

-- Deep syntax and types.
SELECT «(*100000»1«)*100000»
SELECT «(*1000»1«)*1000»
SELECT 1«+1*100000»
SELECT 1«+1*900»
SELECT «-*100000»1
SELECT «NOT *100000»true
SELECT «[*50000»1«]*50000»
SELECT «[*900»1«]*900»
SELECT «{'a':*50000»1«}*50000»
SELECT «{'a':*900»1«}*900»
SELECT «CASE WHEN true THEN *20000»1«END *20000»
SELECT «abs(*50000»1«)*50000»
SELECT «(SELECT *20000»1«)*20000»
SELECT «(SELECT *300»1«)*300»
SELECT * FROM «(SELECT * FROM *20000»events«)*20000»
SELECT * FROM «(SELECT * FROM *300»events«)*300»
SELECT 1 «UNION ALL SELECT 1 *20000»
SELECT 1 «UNION ALL SELECT 1 *1000»
SELECT NULL::INTEGER«[]*50000»
SELECT NULL::INTEGER«[]*900»
SELECT NULL::«STRUCT(a *20000»INTEGER«)*20000»
SELECT NULL::«STRUCT(a *900»INTEGER«)*900»
SELECT NULL::«MAP(INTEGER, *20000»INTEGER«)*20000»
SELECT NULL::INTEGER[100000]«[100000]*5»
SELECT NULL::INTEGER[100000][100000]
SELECT '[]'::INTEGER[100000]
SELECT '«[*50000»«]*50000»'::INTEGER[]
SELECT '«[*900»«]*900»'::INTEGER«[]*900»
SELECT «{'a': 1, 'b': *500»1«}*500»
SELECT x«.a*50000» FROM (SELECT {'a': 1} x)
SELECT x«[1]*50000» FROM (SELECT [1] x)
SELECT 1 FROM events «, events *2000»
SELECT 1 FROM events «NATURAL JOIN events *200»
SELECT «"a"*50000»
SELECT '«x*900000»'
SELECT 1 AS «a*500000»
SELECT «1,*200000»1
SELECT id IN («1,*200000»1) FROM events
SELECT concat(«'x',*100000»'x')
SELECT 'x'«||'x'*50000»
SELECT 'x'«||'x'*900»
SELECT [«1,*200000»1]
VALUES (1)«,(1)*200000»
SELECT 1 WHERE true «AND true *50000»
SELECT 1 ORDER BY 1 «, 1 *50000»
SELECT count(*) FROM events GROUP BY CUBE (id«, id+1*20»)
SELECT count(*) FROM events GROUP BY GROUPING SETS (()«,()*50000»)
SELECT count(*) FROM events GROUP BY CUBE (id, id+1, id+2, id+3, id+4, id+5, id+6, id+7, id+8, id+9, id+10, id+11, id+12, id+13, id+14)
SELECT list_transform([1], lambda x: «list_transform([1], lambda x: *300»1«)*300»[1])
SELECT list_transform([1], lambda x: «list_transform([1], lambda x: *300»1«)*300»)
/*«/***100000» SELECT 1
SELECT 1 --«x*900000»
SELECT $$«$*100000»$$

-- Arguments that size a result.
SELECT len(range(200000000))
SELECT len(range(2000000000))
SELECT len(generate_series(1, 200000000))
SELECT sum(len(range(i * 1000))) FROM range(100000) t(i)
SELECT len(range(TIMESTAMP '1900-01-01', TIMESTAMP '2900-01-01', INTERVAL 1 SECOND))
SELECT length(repeat('x', 2000000000))
SELECT repeat('x', 2000000000)
SELECT sum(length(repeat(name, 1000000))) FROM events
SELECT length(repeat(repeat('x', 100000), 100000))
SELECT length('x'.repeat(2000000000))
SELECT length(system.main.repeat('x', 2000000000))
SELECT length("REPEAT"('x', 2000000000))
SELECT length(repeat('x', CAST('2000000000' AS BIGINT)))
SELECT length(repeat('x', i)) FROM range(2000000000, 2000000010) t(i)
SELECT len(repeat([1], 500000000))
SELECT octet_length(repeat('x'::BLOB, 2000000000))
WITH a AS (SELECT repeat('x', 1000) s), b AS (SELECT repeat(s, 1000) s FROM a), c AS (SELECT repeat(s, 1000) s FROM b) SELECT length(s) FROM c
WITH a AS MATERIALIZED (SELECT repeat('x', 1000) s), b AS MATERIALIZED (SELECT repeat(s, 1000) s FROM a), c AS MATERIALIZED (SELECT repeat(s, 3000) s FROM b) SELECT length(s) FROM c
SELECT length(lpad('x', 2000000000, 'y'))
SELECT length(rpad('x', 2000000000, 'y'))
SELECT sum(length(lpad(name, 1000000, 'y'))) FROM events
SELECT length(bar(1, 0, 1, 2000000000))
SELECT sum(length(bar(id, 0, 1, 100000000))) FROM events
SELECT length(format('{:2000000000}', 'x'))
SELECT length(format('{:>2000000000d}', 1))
SELECT length(format('{:.2000000000f}', 1.0))
SELECT length(format('{:{}}', 'x', 2000000000))
SELECT length(printf('%2000000000d', 1))
SELECT length(printf('%*d', 2000000000, 1))
SELECT length(printf('%.2000000000f', 1.0))
SELECT length(printf('%1000000s', name)) FROM events
SELECT len(list_resize([1], 500000000))
SELECT len(array_resize([1], 500000000, 7))
SELECT sum(len(list_resize([id], 1000000))) FROM events
SELECT len(range(1000)::VARCHAR) FROM range(10000000)
SELECT max(len(list_transform(range(30000), lambda x: range(30000))))
SELECT len(list_transform(range(1000000), lambda x: repeat('x', 10000)))
SELECT len([y for y in range(100000000)])
SELECT len(flatten([[x for x in range(10000)] for y in range(100000)]))
SELECT list_reduce(range(60), lambda a, b: a || a, ['x'])
SELECT list_reduce(['x' for x in range(60)], lambda a, b: a || a)
SELECT len(list_transform(l, lambda x: l)) FROM (SELECT list(i) l FROM range(50000) t(i))
SELECT factorial(2000000000)
SELECT to_base(1, 2, 2000000000)
SELECT length(to_base(1, 2, 2000000000))
SELECT gen_random_uuid() FROM range(100000000)
SELECT round(1.5, 2000000000)
SELECT length(strftime(TIMESTAMP '2000-01-01', repeat('%A', 10000000)))
SELECT length(strftime(TIMESTAMP '2000-01-01', '«%A*100000»'))
SELECT strptime('x', '«%Y*100000»')
SELECT bitstring('1', 2000000000)
SELECT bit_count(bitstring('1', 2000000000))
SELECT bitstring_agg(i, 0, 9000000000) FROM range(3) t(i)
SELECT bitstring_agg(i) FROM (VALUES (0::BIGINT), (9000000000)) t(i)
SELECT equi_width_bins(0, 1000000000, 100000000, false)
SELECT len(equi_width_bins(0, 1000000000, 100000000, false))
SELECT histogram(i, range(100000000)) FROM range(10) t(i)
SELECT quantile_cont(i, list_transform(range(10000000), lambda x: 0.5)) FROM range(1000) t(i)
SELECT quantile_cont(i, [«0.5,*100000»0.5]) FROM range(1000) t(i)
SELECT approx_top_k(i, 1000000000) FROM range(10) t(i)
SELECT reservoir_quantile(i, 0.5, 2000000000) FROM range(10) t(i)
SELECT max(i, 2000000000) FROM range(10) t(i)
SELECT max_by(i, i, 1000000000) FROM range(10) t(i)
SELECT arg_min(i, i, 500000) FROM range(2000000) t(i) GROUP BY i % 1000
SELECT ntile(9000000000) OVER () FROM events
SELECT lag(id, 9000000000) OVER () FROM events
SELECT * FROM repeat('«x*100000»', 100000000)
SELECT * FROM repeat_row('«x*100000»', 'y', num_rows = 100000000)
SELECT sum(length(s)) FROM repeat('«x*100000»', 100000000) t(s)
SELECT * FROM range(9000000000000000000)
SELECT count(*) FROM generate_series(1, 9000000000000000000)
SELECT count(*) FROM range(1000000000000)
SELECT list(i) FROM range(1000000000) t(i)
SELECT len(list(i)) FROM range(1000000000) t(i)
SELECT string_agg('«x*1000»', ',') FROM range(100000000)
SELECT length(string_agg('«x*1000»', '«y*100000»')) FROM range(100000)
SELECT length(group_concat(i)) FROM range(1000000000) t(i)
SELECT array_agg('«x*10000»') FROM range(10000000)
SELECT histogram(i) FROM range(1000000000) t(i)
SELECT map_from_entries(list({'k': i, 'v': i})) FROM range(100000000) t(i)
SELECT json_group_array(i) FROM range(1000000000) t(i)
SELECT json_group_object(i, i) FROM range(1000000000) t(i)
SELECT mode(i) FROM range(1000000000) t(i)
SELECT median(i) FROM range(1000000000) t(i)
SELECT entropy(i) FROM range(1000000000) t(i)
SELECT count(DISTINCT i) FROM range(1000000000) t(i)
SELECT list(DISTINCT i) FROM range(1000000000) t(i)
SELECT list(i ORDER BY i DESC) FROM range(1000000000) t(i)
SELECT list(i) OVER () FROM range(1000000) t(i)
SELECT string_agg(i::VARCHAR, ',') OVER (ORDER BY i) FROM range(1000000) t(i)
SELECT max(len(l)) FROM (SELECT list(i) OVER (ORDER BY i) l FROM range(200000) t(i))
SELECT histogram(i) OVER (ORDER BY i) FROM range(100000) t(i)
SELECT mode(i) OVER (ORDER BY i ROWS BETWEEN 1000 PRECEDING AND CURRENT ROW) FROM range(100000000) t(i)

-- Aggregates whose values DuckDB does not account for.
SELECT quantile_cont(i, 0.5) FROM range(1000000000) t(i)
SELECT quantile_cont(i, [0.1, 0.5, 0.9]) FROM range(1000000000) t(i)
SELECT quantile_disc(i::VARCHAR, 0.5) FROM range(1000000000) t(i)
SELECT mad(i) FROM range(1000000000) t(i)
SELECT median(i::DOUBLE), mode(i), mad(i) FROM range(1000000000) t(i)
SELECT median(DISTINCT i) FROM range(1000000000) t(i)
SELECT median(i) FILTER (WHERE i % 2 = 0) FROM range(1000000000) t(i)
SELECT median(a.i) FROM range(100000) a(i), range(100000) b(i)
SELECT mode(a.id * b.id * c.id) FROM events a, events b, events c
SELECT histogram(a.id * b.id) FROM events a, events b
SELECT mode(repeat('x', 1000) || i) FROM range(1000000000) t(i)
SELECT histogram(repeat('x', 1000) || i) FROM range(1000000000) t(i)
SELECT approx_quantile(i, 0.5) FROM range(1000000000) t(i) GROUP BY i // 2
SELECT approx_top_k(i, 1000) FROM range(1000000000) t(i) GROUP BY i // 2
SELECT approx_top_k(i, 1000) OVER (ORDER BY i ROWS BETWEEN 10000 PRECEDING AND CURRENT ROW) FROM range(3000000) t(i)
SELECT approx_quantile(i, 0.5) OVER (ORDER BY i ROWS BETWEEN 10000 PRECEDING AND CURRENT ROW) FROM range(3000000) t(i)
SELECT reservoir_quantile(i, 0.5, 1000) OVER (ORDER BY i ROWS BETWEEN 10000 PRECEDING AND CURRENT ROW) FROM range(3000000) t(i)
SELECT reservoir_quantile(i, 0.5, 1000) FROM range(100000000) t(i)
SELECT approx_count_distinct(i) FROM range(1000000000) t(i) GROUP BY i // 2
SELECT arg_min(i, i, 1000) FROM range(1000000000) t(i) GROUP BY i // 2
SELECT max(i, 1000) FROM range(1000000000) t(i) GROUP BY i // 2
SELECT median(i) OVER (ORDER BY i ROWS BETWEEN 100000 PRECEDING AND CURRENT ROW) FROM range(10000000) t(i)
SELECT mode(i) OVER (PARTITION BY i % 1000) FROM range(2000000) t(i)
SELECT quantile_cont(i, 0.5) OVER (ORDER BY hash(i) ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM range(3000000) t(i)
SELECT count(DISTINCT i) OVER (ORDER BY i ROWS BETWEEN 100000 PRECEDING AND CURRENT ROW) FROM range(10000000) t(i)
SELECT i % 1000, median(i) FROM range(1000000000) t(i) GROUP BY 1
SELECT i % 1000, list(i), string_agg(i::VARCHAR, ',') FROM range(1000000000) t(i) GROUP BY 1
SELECT list_mode(list(i)) FROM range(1000000000) t(i) GROUP BY i // 100
SELECT list_median(list(i)) FROM range(1000000000) t(i) GROUP BY i // 100
SELECT list_mode(list(i)) FROM range(25000000) t(i)
SELECT len(list_distinct(list(i))) FROM range(25000000) t(i)
SELECT len(list_sort(list(i))) FROM range(25000000) t(i)
SELECT len(string_split(string_agg(i::VARCHAR, ','), ',')) FROM range(12000000) t(i)
SELECT len(to_json(list(i))::VARCHAR) FROM range(12000000) t(i)
SELECT count(*) FROM (SELECT unnest(list(i)) FROM range(12000000) t(i))
SELECT * FROM (PIVOT (SELECT i, i % 3 AS j FROM range(1000000000) t(i)) ON j IN (0, 1, 2) USING median(i))
WITH RECURSIVE t(i, l) AS (SELECT 1, [1] UNION ALL SELECT i + 1, list_append(l, i) FROM t) SELECT max(len(l)) FROM t
WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT median(i) FROM t
SELECT (SELECT median(b.id + a.id) FROM events b) FROM events a

-- Growth by operators.
WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM t WHERE length(s) < 2000000000) SELECT max(length(s)) FROM t
WITH RECURSIVE t(l) AS (SELECT [1] UNION ALL SELECT l || l FROM t WHERE len(l) < 2000000000) SELECT max(len(l)) FROM t
WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT concat(s, s) FROM t) SELECT max(length(s)) FROM t
WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT replace(s, 'x', 'xxxxxxxxxx') FROM t) SELECT max(length(s)) FROM t
WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT count(*) FROM t
WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i FROM t) SELECT * FROM t
WITH RECURSIVE t(i) AS (SELECT 1 UNION SELECT i + 1 FROM t) SELECT max(i) FROM t
WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i FROM t, range(10)) SELECT count(*) FROM t
WITH RECURSIVE t(i, s) AS (SELECT 1, '«x*1000»' UNION ALL SELECT i + 1, s || '«x*1000»' FROM t) SELECT max(length(s)) FROM t
WITH RECURSIVE t(i) USING KEY (i) AS (SELECT 1 UNION SELECT i + 1 FROM t) SELECT count(*) FROM t
SELECT 'x' a0, a0||a0||a0||a0 a1, a1||a1||a1||a1 a2, a2||a2||a2||a2 a3, a3||a3||a3||a3 a4, a4||a4||a4||a4 a5, a5||a5||a5||a5 a6, a6||a6||a6||a6 a7, a7||a7||a7||a7 a8, a8||a8||a8||a8 a9, a9||a9||a9||a9 a10, a10||a10||a10||a10 a11, a11||a11||a11||a11 a12, a12||a12||a12||a12 a13, a13||a13||a13||a13 a14, a14||a14||a14||a14 a15, length(a15)
SELECT [1] a0, a0||a0||a0||a0 a1, a1||a1||a1||a1 a2, a2||a2||a2||a2 a3, a3||a3||a3||a3 a4, a4||a4||a4||a4 a5, a5||a5||a5||a5 a6, a6||a6||a6||a6 a7, a7||a7||a7||a7 a8, a8||a8||a8||a8 a9, a9||a9||a9||a9 a10, a10||a10||a10||a10 a11, a11||a11||a11||a11 a12, a12||a12||a12||a12 a13, a13||a13||a13||a13 a14, a14||a14||a14||a14 a15, len(a15)
WITH a AS (SELECT 'xxxxxxxxxx' s), b AS (SELECT concat(s,s,s,s,s,s,s,s,s,s) s FROM a), c AS (SELECT concat(s,s,s,s,s,s,s,s,s,s) s FROM b), d AS (SELECT concat(s,s,s,s,s,s,s,s,s,s) s FROM c), e AS (SELECT concat(s,s,s,s,s,s,s,s,s,s) s FROM d), f AS (SELECT concat(s,s,s,s,s,s,s,s,s,s) s FROM e), g AS (SELECT concat(s,s,s,s,s,s,s,s,s,s) s FROM f), h AS (SELECT concat(s,s,s,s,s,s,s,s,s,s) s FROM g), i AS (SELECT concat(s,s,s,s,s,s,s,s,s,s) s FROM h) SELECT length(s) FROM i
WITH a AS (SELECT {'x': 1} s), b AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM a), c AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM b), d AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM c), e AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM d), f AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM e), g AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM f), h AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM g), i AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM h), j AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM i), k AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM j), l AS (SELECT {'a':s,'b':s,'c':s,'d':s} s FROM k) SELECT * FROM l
SELECT length(replace('«x*1000»', 'x', replace('«x*1000»', 'x', '«x*1000»')))
SELECT length(replace(replace(replace('«x*1000»', 'x', '«x*1000»'), 'x', '«x*1000»'), 'x', '«x*1000»'))
SELECT length(regexp_replace(regexp_replace('«x*10000»', 'x', '«x*10000»', 'g'), 'x', '«x*100»', 'g'))
SELECT length(regexp_replace('«x*10000»', '.*', '«\0*10000»', 'g'))
SELECT length(regexp_replace(regexp_replace('«x*1000»', '.*', '«\0*1000»'), '.*', '«\0*1000»'))
SELECT len(string_split(repeat('x', 100000000), ''))
SELECT len(regexp_extract_all(repeat('x', 10000000), '.'))
SELECT length(array_to_string([«'x',*1000»'x'], '«x*100000»'))
SELECT length(array_to_string(range(1000000), '«x*10000»'))
SELECT length(concat_ws('«x*100000»', «'x',*10000»'x'))
SELECT length(to_base64(repeat('x', 1000000000)::BLOB))
SELECT length(hex(repeat('x', 1000000000)))
SELECT length(url_encode(repeat('é', 500000000)))
SELECT * FROM (SELECT unnest(range(100000000)))
SELECT unnest(range(1000000)), unnest(range(1000000))
SELECT count(*) FROM events a, events b, events c, events d
SELECT count(*) FROM events a, events b, events c, events d WHERE a.id + b.id + c.id + d.id = 3
SELECT * FROM events a, events b ORDER BY a.name || b.name
SELECT DISTINCT a.name || b.name || c.id FROM events a, events b, events c
SELECT * FROM events a, events b, events c
SELECT * FROM range(100000000) t(i) ORDER BY hash(i)
SELECT hash(i), count(*) FROM range(1000000000) t(i) GROUP BY 1
SELECT row_number() OVER (PARTITION BY i % 10 ORDER BY hash(i)) FROM range(1000000000) t(i)
SELECT a.i FROM range(100000000) a(i) JOIN range(100000000) b(i) ON hash(a.i) = hash(b.i)
SELECT a.i FROM range(1000000) a(i) JOIN range(1000000) b(i) ON a.i < b.i
SELECT * FROM (PIVOT range(100000) ON range USING count(*))
SELECT * FROM (PIVOT (SELECT i, i AS j FROM range(10000) t(i)) ON i USING list(j))
SUMMARIZE SELECT * FROM range(1000000000)
EXPLAIN ANALYZE SELECT count(*) FROM range(1000000000000)
SELECT * FROM (SUMMARIZE SELECT i, hash(i) FROM range(1000000000) t(i))

-- Patterns.
SELECT count(*) FROM events WHERE name LIKE '«%a*50000»'
SELECT repeat('a', 100000) LIKE '«%a*5000»b'
SELECT '«a*100000»' LIKE '«%a*5000»b'
SELECT '«a*100000»' ILIKE '«%a*5000»b'
SELECT '«a*100000»' GLOB '«*a*5000»b'
SELECT '«a*10000»' SIMILAR TO '(a|a)*b'
SELECT regexp_matches('«a*100000»', '(a*)*b')
SELECT regexp_matches('«a*100000»', '((a{1,100}){1,100}){1,100}')
SELECT regexp_matches('x', '«(*100000»x«)*100000»')
SELECT regexp_matches('x', '«(a|*10000»x«)*10000»')
SELECT regexp_matches('«a*100000»', '(«a?*1000»«a*1000»)')
SELECT regexp_matches('x', '[«a-z*100000»]')
SELECT regexp_matches('x', '«\pL*50000»')
SELECT regexp_extract('«a*100000»', '«(.)*5000»')
SELECT count(*) FROM range(10000000) t(i) WHERE regexp_matches('«a*1000»' || i, '(«a?*100»)*b')
SELECT len(string_split_regex('«a*100000»', ''))
SELECT regexp_matches(name, name || '(((((.*)*)*)*)*)*') FROM events
SELECT levenshtein('«a*100000»', '«b*100000»')
SELECT damerau_levenshtein('«a*30000»', '«b*30000»')
SELECT jaro_similarity('«a*500000»', '«b*500000»')
SELECT jaccard('«a*500000»', '«b*500000»')
SELECT strip_accents('«é*400000»')
SELECT md5(repeat('x', 2000000000))

-- Ways round a list of functions.
SELECT sleep_ms(10000)
SELECT pg_sleep(10)
SELECT sleep_ms(i) FROM range(10000, 10100) t(i)
SELECT error('x') FROM events
SELECT getenv('HOME')
SELECT getvariable('x')
SELECT current_setting('memory_limit')
SELECT setseed(0.5), random()
SELECT list_aggregate([1,2], 'write_log')
SELECT list_aggregate(range(1000000), 'string_agg', '«x*100000»')
SELECT list_aggr(['«x*100»'], 'histogram')
SELECT list_string_agg(range(10000000))
SELECT list_histogram(range(10000000))
SELECT write_log('x')
SELECT main.write_log('x')
SELECT "system"."main"."write_log"('x')
SELECT 'x'.write_log()
SELECT cast_to_type('1', NULL::INTEGER[])
SELECT create_sort_key('«x*100000»', 'ASC') FROM range(100000)
SELECT __internal_decompress_string(1::UBIGINT)
SELECT __internal_decompress_string(170141183460469231731687303715884105727::HUGEINT)
SELECT __internal_compress_string_ubigint('«x*100»')
SELECT variant_bytes_to_variant('\xff\xff\xff\xff'::BLOB, '\xff'::BLOB)
SELECT bytes_to_variant('\xff\xff\xff\xff')
SELECT vector_type(1)
SELECT stats(id) FROM events
SELECT current_query()
SELECT nextval('x')
SELECT make_type('INTEGER')
SELECT remap_struct({'a': 1}, NULL::STRUCT(b INTEGER), {'b': 'a'}, NULL)
SELECT finalize('x'), combine('x', 'y')
SELECT fill(i) OVER (ORDER BY i) FROM range(10) t(i)
SELECT enum_range(NULL::ENUM('a'))
SELECT * FROM duckdb_functions()
SELECT * FROM duckdb_settings(), duckdb_functions(), duckdb_functions()
SELECT * FROM pragma_storage_info('events')
SELECT * FROM summary((SELECT * FROM events))
SELECT * FROM test_all_types()
SELECT * FROM test_vector_types(NULL::INTEGER)
SELECT * FROM sql_auto_complete('SEL')
SELECT * FROM histogram_values(events, id, bin_count := 100000000)
SELECT * FROM histogram(events, id, bin_count := 100000000)
FROM query('SELECT repeat(''x'', 2000000000)')
SELECT * FROM query_table(['events', 'events'])
SELECT COLUMNS(*)::JSON FROM events
SELECT COLUMNS('(((.*)*)*)*') FROM events
SELECT * REPLACE (repeat('x', 2000000000) AS id) FROM events
SELECT id FROM events LIMIT (SELECT length(repeat('x', 2000000000)))
SELECT id FROM events ORDER BY repeat('x', 2000000000)
SELECT id FROM events WHERE length(repeat('x', 2000000000)) = id
SELECT id FROM events QUALIFY row_number() OVER (ORDER BY length(repeat('x', 2000000000))) = 1
SELECT count(*) FILTER (WHERE length(repeat('x', 2000000000)) > 0) FROM events
SELECT sum(id) OVER (ROWS BETWEEN length(repeat('x', 2000000000)) PRECEDING AND CURRENT ROW) FROM events
SELECT id FROM events TABLESAMPLE 100%
SELECT id FROM events LIMIT 9000000000000000000 OFFSET 9000000000000000000
VALUES (repeat('x', 2000000000))
SELECT CASE WHEN id < 0 THEN repeat('x', 2000000000) END FROM events
SELECT unnest([repeat('x', 2000000000)])
SELECT {'a': repeat('x', 2000000000)}
SELECT MAP {'a': repeat('x', 2000000000)}
SELECT id FROM events GROUP BY id HAVING length(repeat('x', 2000000000)) > 0
SELECT 1 FROM events a LEFT JOIN events b ON length(repeat('x', 2000000000)) = a.id
SELECT * FROM range(length(repeat('x', 2000000000)))
SELECT * FROM (VALUES (1)) t(a), LATERAL (SELECT repeat('x', 2000000000 + a))
EXPLAIN SELECT repeat('x', 2000000000)
EXPLAIN ANALYZE SELECT repeat('x', 2000000000)
EXPLAIN (FORMAT json) SELECT repeat('x', 2000000000)
DESCRIBE SELECT repeat('x', 2000000000)
SUMMARIZE SELECT repeat('x', 2000000000)
EXPLAIN EXPLAIN SELECT repeat('x', 2000000000)
SELECT repeat('x', 2000000000); SELECT 1
CREATE MACRO r(n) AS repeat('x', n)
WITH RECURSIVE f(n) AS (SELECT repeat('x', 2000000000)) SELECT * FROM f
SELECT (SELECT length(repeat('x', 2000000000)))
SELECT EXISTS (SELECT repeat('x', 2000000000))
SELECT id IN (SELECT length(repeat('x', 2000000000))) FROM events
SELECT ARRAY(SELECT repeat('x', 100000000) FROM range(20))
SELECT '2000000000'::BIGINT::BIT
SELECT 1::BIT::VARCHAR::BLOB
SELECT ('«\x00*100000»')::BLOB
SELECT '\xff\xfe'::BLOB::VARCHAR
SELECT DATE '290000-01-01' + INTERVAL 1000000 YEAR
SELECT 9223372036854775807 + 1
SELECT (-9223372036854775808) // -1
SELECT 170141183460469231731687303715884105727::HUGEINT * 2
SELECT 1.0::DECIMAL(38,37) * 99999
SELECT date_trunc('«x*10000»', now())
SELECT time_bucket(INTERVAL 1 MICROSECOND, TIMESTAMP '290000-01-01')
SELECT chr(2000000000)
SELECT unicode('')
SELECT substring('x', -9223372036854775808, 9223372036854775807)
SELECT [1,2,3][-9223372036854775808:9223372036854775807:-9223372036854775808]
SELECT list_slice(range(10), 1, 9223372036854775807, 9223372036854775807)
SELECT position('' IN '«x*100000»')
SELECT translate('«x*100000»', '«x*100000»', '«y*100000»')
