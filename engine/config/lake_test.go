package config

import (
	"strconv"
	"strings"
	"testing"
)

// TestLakeAddresses: a store keeps the addresses of a lake, and shows them, so that those with a
// secret are refused, however they are written, and no others.
func TestLakeAddresses(t *testing.T) {
	check := func(warehouse, catalog, want string) {
		t.Helper()
		_, err := readAll("tables: {t: {lake: {warehouse: " + strconv.Quote(warehouse) + ", catalog: " + strconv.Quote(catalog) + "}}}\npipelines: {p: {source: {redis: {address: a, list: l}}, sink: {stdout: {}}}}\n")
		switch {
		case (err == nil) != (want == ""), err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("warehouse %s, catalog %s: %v, want %q", warehouse, catalog, err, want)
		case err != nil && strings.Contains(err.Error(), "s3cret"):
			t.Errorf("warehouse %s, catalog %s: the error shows the secret: %v", warehouse, catalog, err)
		}
	}
	for _, catalog := range []string{
		"", "http://127.0.0.1:8181", "https://host/catalog/main@x", "http://[::1]:8181/a?warehouse=x", "http://host:8181/a?user=me@host",
		"postgres://perigee@127.0.0.1/lake", "postgres://perigee@127.0.0.1:5432/lake?sslmode=verify-full", "postgresql:///lake?host=/run/postgresql",
		"postgres://me%40host@[::1]:5432,[::2]:5432/lake", "postgres://me@%2Frun%2Fpostgresql/lake", "postgres://me@host?sslmode=disable", "postgres://a:5432,b/lake?user=me@host", "postgres://me@host/my@base", "postgres://me%40host@host/lake",
		"postgres://me@host/lake?passfile=/etc/pass", "sqlite:///srv/a:b@c.db", "sqlite:///srv/A-z_0.9~+=,.db", "sqlite:////srv/catalog.db", "sqlite:/srv/catalog.db",
	} {
		check("/srv/lake", catalog, "")
	}
	for _, catalog := range []string{
		"postgres://me:s3cret@host/lake", "postgres://me:100%s3cret@host/lake", "postgres://me:s3cret", "postgres://me:s3cret/lake", "postgres://me:a@s3cret@host/lake", "postgres://me:12?s3cret@host/lake",
		"postgres://me:12#s3cret@host/lake", "postgres://me:1/2?s3cret@host/lake", "postgres://me@host:s3cret@x/lake", "postgres://:s3cret@host/lake", "postgres://me:@host/lake",
		"Postgres://me:s3cret@host/lake", "me:s3cret@tcp(host)/lake", "postgres:me:s3cret@host/lake", "sqlite://me:s3cret@host/lake", "postgres://host/lake password=s3cret",
		"postgres://host/lake?a=%zz&password=s3cret", "postgres://host/lake?PASSWORD=s3cret", "https://host/?access_token=s3cret", "https://host/#token=s3cret", "https://s3cret@host",
		"https://host/100%s3cret", "https://me:s3cret/", "host=s3cret", "s3cret",
	} {
		check("/srv/lake", catalog, "the catalog's address")
	}
	for _, catalog := range []string{"sqlite:", "sqlite://", "sqlite:///", "sqlite:////", "sqlite://catalog.db", "sqlite://srv/catalog.db", "sqlite:catalog.db", "sqlite:///srv/", "sqlite::memory:", "sqlite:me:s3cret@host/lake"} {
		check("/srv/lake", catalog, "a sqlite catalog needs the absolute path of a file")
	}
	for _, odd := range []string{" ", "ü", "%", "%41", "#", "?", "\\", "*"} { // programs would read them as different files
		check("/srv/a"+odd+"b", "", "the warehouse's address has other characters")
		check("s3://bucket/a"+odd+"b", "http://127.0.0.1:8181", "the warehouse's address has")
		check("/srv/lake", "sqlite:///srv/a"+odd+"b.db", "the path of the sqlite catalog has other characters")
	}
	for warehouse, want := range map[string]string{
		"s3://bucket": "", "s3://bucket/a@b": "", "s3://bucket/a:b@c/": "", "/srv/a:b@c": "",
		"s3://KEY:s3cret@bucket/lake": "the warehouse's address", "s3://KEY:s3/cret@bucket": "the warehouse's address", "s3://KEY:12/s3cret@bucket": "the warehouse's address",
		"s3://s3cret@bucket": "the warehouse's address", "s3a://KEY:s3cret@bucket": "the warehouse's address", "s3://bucket/lake?secret_key=s3cret": "the warehouse's address",
		"s3://bucket/100%s3cret": "the warehouse's address", "s3:///x": "the warehouse's address has no bucket", "s3://": "the warehouse's address has no bucket", "lake": "neither a folder nor in S3",
	} {
		check(warehouse, "http://127.0.0.1:8181", want)
	}
}

// TestLakeLocal: an age of nothing would keep all data, and looks like the opposite.
func TestLakeLocal(t *testing.T) {
	for local, want := range map[string]string{"": "", ", local: 1d": "", ", local: 0": `local "0" is no age`, ", local: 0s": `local "0s" is no age`} {
		_, err := readAll("tables: {t: {lake: {warehouse: /srv/lake" + local + "}}}\n" + onePipeline)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", local, err, want)
		}
	}
}

// TestLakesWithoutS3: a lake in S3 needs the environment, and must not seem to take s3.
func TestLakesWithoutS3(t *testing.T) {
	const lakes = "tables:\n  a: {lake: {warehouse: s3://b/lake, catalog: http://127.0.0.1:8181}}\n  b: {lake: {warehouse: /srv/lake}}\n  c: {}\n" + onePipeline
	environment := map[string]string{"AWS_REGION": "r", "AWS_ACCESS_KEY_ID": ""}
	for _, test := range []struct{ s3, want string }{
		{"", ""},
		{"s3: {region: eu}\n", ""},
		{"s3: {endpoint: http://127.0.0.1:9000, region: eu, access_key: k, secret_key: k}\n", "the lake of table a does not take s3, but the environment, which lacks AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"},
	} {
		c, err := readAll(test.s3 + lakes)
		if err != nil {
			t.Fatal(err)
		}
		faults, want := c.LakesWithoutS3(func(name string) (string, bool) { value, found := environment[name]; return value, found }), 0
		if test.want != "" {
			want = 1
		}
		if len(faults) != want || want > 0 && (faults[0].Message != test.want || faults[0].Line != 3) {
			t.Errorf("%s: got %v, want %q", test.s3, faults, test.want)
		}
	}
}
