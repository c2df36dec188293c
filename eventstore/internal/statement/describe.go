package statement

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/perigeedb/perigee/eventstore/internal/manifest"
)

var describeTable = regexp.MustCompile(`(?is)^\s*(?:DESCRIBE|DESC)\s+(?:TABLE\s+)?(?:main\s*\.\s*)?(\w+|"(?:[^"]|"")+")\s*;?\s*$`)

// DescribeRequired returns SQL that sets column null to NO for the required columns of a
// table if sql is a DESCRIBE of one. DuckDB itself sees a view, whose columns are all
// nullable.
func DescribeRequired(m *manifest.Manifest, sql string) string {
	match := describeTable.FindStringSubmatch(sql)
	if match == nil {
		return sql
	}
	name := match[1]
	if name[0] == '"' {
		name = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
	}
	for _, t := range m.Tables {
		if strings.EqualFold(t.Name, name) {
			return describeSQL(t, sql)
		}
	}
	return sql
}

func describeSQL(t *manifest.Table, sql string) string {
	var required []string
	for _, c := range t.Current().Columns {
		if c.Required {
			required = append(required, "'"+strings.ReplaceAll(c.Name, "'", "''")+"'")
		}
	}
	if len(required) == 0 {
		return sql
	}
	return fmt.Sprintf(`SELECT * REPLACE (CASE WHEN column_name IN (%s) THEN 'NO' ELSE "null" END AS "null") FROM (DESCRIBE main."%s")`,
		strings.Join(required, ", "), t.Name)
}
