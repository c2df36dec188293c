package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/perigeedb/perigee/eventstore/lake"
)

// lakeTable matches the names of tables that all engines take.
var lakeTable = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$`)

// checkLake checks where a table is published. The tags of catalog.Lake have its patterns, for the schema.
func (d *document) checkLake(n *node, t *Table) {
	if warehouse := n.get("warehouse"); warehouse != nil {
		d.checkWarehouse(warehouse.value, t.Lake.Warehouse)
	}
	if strings.HasPrefix(t.Lake.Warehouse, "s3://") && t.Lake.Catalog == "" {
		d.addFault(n.at, "add catalog: the address of a REST catalog (http, https) or of a database (postgres://…, sqlite:///…)", "a lake in S3 needs a catalog: a bucket cannot be its own, as a folder can")
	}
	if t.Lake.Catalog != "" {
		d.checkCatalog(n.get("catalog").value, t.Lake.Catalog)
	}
	if local := n.get("local"); local != nil && t.Lake.Local == 0 {
		d.addFault(local.value.at, "leave it out to keep all data on this disk, or write an age such as 1d", "local %s is no age", quoteShort(local.value.raw))
	}
	if name := t.Lake.Table; name != "" && !lakeTable.MatchString(name) {
		d.addFault(n.get("table").value.at, "write NAMESPACE.TABLE, with letters, digits and _", "invalid lake table %s", quoteShort(name))
	}
}

// checkWarehouse checks the address of a warehouse in n. The store keeps it, and shows it, so that
// it must not have a key.
func (d *document) checkWarehouse(n *node, warehouse string) {
	bucket, isS3 := strings.CutPrefix(warehouse, "s3://")
	if isS3 {
		bucket, _, _ = strings.Cut(bucket, "/")
	}
	switch _, err := url.Parse(warehouse); {
	case filepath.IsAbs(warehouse):
		if !lake.IsPlain(warehouse) {
			d.addFault(n.at, plainHint, "the warehouse's address has other characters than %s", lake.PlainCharacters)
		}
	case isS3 && strings.ContainsAny(bucket, ":@") || hasCredentials(warehouse):
		d.hide(n)
		d.addFault(n.at, "write s3://BUCKET/PREFIX, and set the address and the keys of S3 in the environment of the engine: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY", "the warehouse's address has more than the bucket and a prefix")
	case isS3 && bucket == "":
		d.addFault(n.at, "write s3://BUCKET/PREFIX", "the warehouse's address has no bucket")
	case !isS3:
		d.addFault(n.at, "write an absolute path, or s3://BUCKET/PREFIX", "warehouse %s is neither a folder nor in S3", quoteShort(n.raw))
	case err != nil || !lake.IsPlain(warehouse): // the error repeats the address
		d.hide(n)
		d.addFault(n.at, plainHint, "the warehouse's address has other characters than %s", lake.PlainCharacters)
	}
}

const plainHint = "choose another name: programs read other characters in addresses in different ways"

// checkCatalog checks the address of a catalog in n. The store keeps it, and shows it, so that it
// must not have a password.
func (d *document) checkCatalog(n *node, address string) {
	scheme, rest, hasScheme := strings.Cut(address, ":")
	isREST := scheme == "http" || scheme == "https"
	known := []string{"http", "https", "postgres", "postgresql", "sqlite"}
	switch {
	case hasCredentials(address) && isREST:
		d.hide(n)
		d.addFault(n.at, "remove them, and set PERIGEE_LAKE_TOKEN in the environment of the engine to a token or to CLIENT:SECRET; write %40 for any other @", "the catalog's address has credentials")
	case hasCredentials(address):
		d.hide(n)
		d.addFault(n.at, "remove it, and set it in the environment of the engine: PGPASSWORD, or PGPASSFILE; write %40 for any other @", "the catalog's address has a password")
	case hasScheme && n.raw == n.text && schemeOnly.MatchString(scheme) && !slices.Contains(known, scheme):
		d.addFault(n.at, "write the address of a REST catalog (http, https) or of a database (postgres://…, sqlite:///…)", "unknown kind of catalog %s", quoteShort(scheme))
	case scheme == "sqlite" && !sqliteFile.MatchString(rest):
		if strings.Contains(rest, "@") { // it may be a password
			d.hide(n)
		}
		d.addFault(n.at, "write sqlite:///srv/lake.db", "a sqlite catalog needs the absolute path of a file")
	case scheme == "sqlite" && !lake.IsPlain(rest):
		d.addFault(n.at, plainHint, "the path of the sqlite catalog has other characters than %s", lake.PlainCharacters)
	case !slices.Contains(known, scheme) || !canParse(scheme, rest):
		d.hide(n)
		d.addFault(n.at, "write http://HOST:PORT, https://HOST, postgres://USER@HOST/DATABASE or sqlite:///PATH, with %25 for a percent sign", "the catalog's address cannot be parsed")
	}
}

// LakesWithoutS3 returns a fault for each lake in S3 if lookup, which is os.LookupEnv, lacks a
// variable whose value the configuration has in s3. Lakes take only the variables: commands also open
// a store without its configuration.
func (c *Config) LakesWithoutS3(lookup func(string) (string, bool)) (faults Errors) {
	var missing []string
	for _, setting := range [][2]string{
		{c.S3.Endpoint, "AWS_ENDPOINT_URL"}, {c.S3.Region, "AWS_REGION"}, {c.S3.AccessKey, "AWS_ACCESS_KEY_ID"}, {c.S3.SecretKey, "AWS_SECRET_ACCESS_KEY"},
	} {
		if value, _ := lookup(setting[1]); value == "" && setting[0] != "" {
			missing = append(missing, setting[1])
		}
	}
	for i := range c.Tables {
		if t := &c.Tables[i]; len(missing) > 0 && strings.HasPrefix(t.Lake.Warehouse, "s3://") {
			err := fmt.Errorf("the lake of table %s does not take s3, but the environment, which lacks %s", t.Name, strings.Join(missing, ", "))
			faults = append(faults, t.atKey("lake").At(err, "set AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the engine").(Errors)...)
		}
	}
	return faults
}

var schemeOnly = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// sqliteFile matches what follows the scheme: an absolute path, which other programs write with
// one more slash. SQLite takes less for a temporary database, or a file in the working folder.
var sqliteFile = regexp.MustCompile(`^(/|/{3,})[^/](.*[^/])?$`)

// postgresAddress matches what follows the scheme: a user, a list of hosts with ports, a path.
var postgresAddress = regexp.MustCompile(`^//([^/@]*@)?` + postgresHost + `(,` + postgresHost + `)*([/?].*)?$`)

const postgresHost = `(\[[^\]/]*\]|[^\[\]:/?,]*)(:[0-9]*)?`

// canParse reports whether the client of a catalog can parse its address. That of PostgreSQL takes
// lists of hosts, which package url does not, and that of SQLite any path.
func canParse(scheme, rest string) bool {
	switch scheme {
	case "sqlite":
		return true
	case "postgres", "postgresql":
		_, err := url.PathUnescape(rest)
		return err == nil && postgresAddress.MatchString(rest)
	}
	_, err := url.Parse(scheme + ":" + rest)
	return err == nil && strings.HasPrefix(rest, "//")
}

// tellingParameter matches a parameter that is a secret, of an address or in the form in which
// libpq takes all parameters: host=… password=….
var tellingParameter = regexp.MustCompile(telling + `[\w.-]*\s*=`)

// hasCredentials reports whether an address has a password, also one with characters that end the
// authority of an address. Parsers differ in what such an address means, and refuse most of them,
// but the store would still keep them.
func hasCredentials(address string) bool {
	if tellingParameter.MatchString(unescape(address)) {
		return true
	}
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		_, rest, _ = strings.Cut(address, ":")
		return strings.Contains(rest, "@") && !strings.HasPrefix(address, "sqlite:")
	}
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	if host, _, _ := strings.Cut(authority, "?"); strings.HasPrefix(scheme, "http") && strings.Contains(host, "@") {
		return true // a name alone may be a token
	}
	_, password, found := strings.Cut(authority, ":")
	if !found || scheme == "sqlite" { // whose path may have an @
		return strings.Contains(password, "@")
	}
	path, query, _ := strings.Cut(path, "?")
	name, _, _ := strings.Cut(query, "=") // not the values of parameters
	return strings.Contains(password+path+name, "@")
}

var escapePattern = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// unescape decodes the valid escapes of an address.
func unescape(address string) string {
	return escapePattern.ReplaceAllStringFunc(address, func(escape string) string {
		decoded, _ := url.PathUnescape(escape)
		return decoded
	})
}
