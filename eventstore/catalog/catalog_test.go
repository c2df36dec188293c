package catalog

import "testing"

// TestLakeShares compares settings of two tables that have the same name in the lake.
func TestLakeShares(t *testing.T) {
	for _, test := range []struct {
		warehouse, catalog   string
		warehouse2, catalog2 string
		want                 bool
	}{
		{"/lake", "", "/lake", "", true},
		{"/lake", "", "/./lake/", "", true},
		{"/lake", "", "/other", "", true}, // in the catalog of the engine
		{"/lake", "", "/lake", "sqlite:///lake.db", false},
		{"/lake", "sqlite:///lake.db", "/other", "sqlite:////lake.db", true},
		{"/lake", "sqlite:///lake.db", "/lake", "sqlite:///other.db", false},
		{"s3://a", "postgres://db/lake", "s3://b/c", "postgresql://DB/lake/", true},
		{"s3://a", "postgres://db/lake", "s3://a", "postgres://db/other", false},
		{"s3://a", "http://catalog:8181", "s3://a/", "http://Catalog:8181/", true},
		{"s3://a", "http://catalog:8181", "s3://b", "http://catalog:8181", false},
		{"s3://a", "http://catalog:8181/one", "s3://a", "http://catalog:8181/two", false},
	} {
		a, b := Lake{Warehouse: test.warehouse, Catalog: test.catalog, Table: "ns.t"}, Lake{Warehouse: test.warehouse2, Catalog: test.catalog2, Table: "NS.T"}
		if got := a.Shares(b); got != test.want || b.Shares(a) != got {
			t.Errorf("%+v shares %+v: got %v, want %v", a, b, got, test.want)
		}
		if b.Table = "ns.other"; a.Shares(b) {
			t.Errorf("%+v shares %+v, a table of another name", a, b)
		}
	}
}
