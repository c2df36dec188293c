package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/hadoop"
	sqlcatalog "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lake"
	"github.com/perigeedb/perigee/internal/durable"
)

// catalogName is the name of the catalog in an SQL database, which may hold several.
const catalogName = "perigee"

// openCatalog opens the catalog of a table. It creates the warehouse's folder and what the catalog
// itself needs if they are missing and create is set.
func openCatalog(ctx context.Context, s *lake.Settings, create bool) (catalog.Catalog, error) {
	properties := fileProperties()
	warehouse, err := warehouseOf(s)
	if err != nil {
		return nil, err
	}
	if err := checkAddresses(s); err != nil {
		return nil, err
	}
	if path := strings.TrimPrefix(warehouse, "file://"); warehouse != s.Warehouse && create {
		if err := durable.MkdirAll(path, 0o755); err != nil {
			return nil, fmt.Errorf("make the warehouse: %w", err)
		}
	}
	properties["warehouse"] = warehouse
	scheme, rest, _ := strings.Cut(s.Catalog, ":")
	switch scheme {
	case "":
		return hadoop.NewCatalog(catalogName, strings.TrimPrefix(warehouse, "file://"), properties)
	case "http", "https":
		return openREST(ctx, s.Catalog, warehouse, properties)
	case "postgres", "postgresql":
		return openSQL("pgx", s.Catalog, sqlcatalog.Postgres, properties, create)
	case "sqlite":
		path, err := sqlitePath(rest)
		if err != nil {
			return nil, err
		}
		mode := "mode=rw"
		if create {
			mode = "_pragma=journal_mode(WAL)"
		}
		return openSQL("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&"+mode, sqlcatalog.SQLite, properties, create)
	}
	return nil, permanent("", "the catalog is not an address of a REST catalog (http, https) or a database (postgres, sqlite)")
}

// checkAddresses returns an error if the addresses of a table cannot be parsed. Errors of package url
// repeat the address, or a part of it, which may be a password.
func checkAddresses(s *lake.Settings) error {
	const hint = "correct it in the configuration of the table"
	if _, err := url.Parse(s.Catalog); err != nil && strings.HasPrefix(s.Catalog, "http") { // other clients do not use package url
		return permanent(hint, "the catalog's address cannot be parsed")
	}
	if _, err := url.Parse(s.Warehouse); err != nil && strings.Contains(s.Warehouse, "://") {
		return permanent(hint, "the warehouse's address cannot be parsed")
	}
	return nil
}

// warehouseOf returns the address of a warehouse.
func warehouseOf(s *lake.Settings) (string, error) {
	if !lake.IsPlain(s.Warehouse) {
		return "", permanent(plainHint, "the warehouse's address has other characters than %s", lake.PlainCharacters)
	}
	if strings.Contains(s.Warehouse, "://") {
		return s.Warehouse, nil
	}
	path, err := filepath.Abs(s.Warehouse)
	return "file://" + path, err
}

const plainHint = "choose another name: programs read other characters in addresses in different ways"

// sqlitePath returns the path in an address of SQLite without its scheme. Other programs write an
// absolute path after four slashes.
func sqlitePath(rest string) (string, error) {
	path := strings.TrimPrefix(rest, "//")
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") { // that is a temporary database, or a file in the working folder
		return "", permanent("write sqlite:///srv/lake.db", "a sqlite catalog needs the absolute path of a file")
	}
	if !lake.IsPlain(path) {
		return "", permanent(plainHint, "the path of the sqlite catalog has other characters than %s", lake.PlainCharacters)
	}
	return "/" + strings.TrimLeft(path, "/"), nil
}

func openSQL(driver, address string, dialect sqlcatalog.SupportedDialect, properties iceberg.Properties, create bool) (catalog.Catalog, error) {
	properties["init_catalog_tables"] = strconv.FormatBool(create)
	db, err := sql.Open(driver, address)
	if err != nil {
		return nil, err
	}
	c, err := sqlcatalog.NewCatalog(catalogName, db, dialect, properties)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &sqlCatalog{c, db, dialect}, nil
}

// A sqlCatalog closes its connections, too.
type sqlCatalog struct {
	*sqlcatalog.Catalog
	db      *sql.DB
	dialect sqlcatalog.SupportedDialect
}

func (c *sqlCatalog) Close() error { return errors.Join(c.Catalog.Close(), c.db.Close()) }

// fileProperties returns the properties for reading and writing files, from the environment
// variables of S3 clients.
func fileProperties() iceberg.Properties {
	properties := iceberg.Properties{}
	for key, variable := range map[string]string{
		"s3.endpoint": "AWS_ENDPOINT_URL", "s3.region": "AWS_REGION", "s3.access-key-id": "AWS_ACCESS_KEY_ID", "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
	} {
		if value := os.Getenv(variable); value != "" {
			properties[key] = value
		}
	}
	return properties
}

// loadTable loads the table of an order. It creates the table, its namespace and columns if
// they are missing, and fills in the IDs of the order's columns. With Look it only loads the table.
func loadTable(ctx context.Context, c catalog.Catalog, o *lake.TableOrder) (*table.Table, error) {
	identifier := catalog.ToIdentifier(strings.Split(o.Table, ".")...)
	t, err := c.LoadTable(ctx, identifier)
	if errors.Is(err, catalog.ErrNoSuchTable) && !o.Look {
		t, err = createTable(ctx, c, identifier, o)
	}
	if err != nil {
		return nil, explainTorn(o, err)
	}
	if o.Look { // only its files matter
		return t, checkVersion(&o.Settings, t)
	}
	if err := checkTable(&o.Settings, t); err != nil {
		return nil, err
	}
	if err := addColumns(ctx, c, t, o.Columns); err != nil {
		return nil, err
	}
	if t, err = c.LoadTable(ctx, identifier); err != nil {
		return nil, err
	}
	if t, err = addInterims(ctx, c, t, o); err != nil {
		return nil, err
	}
	var widened errWidened
	for i := range o.Columns {
		column := &o.Columns[i]
		field, found := t.Schema().FindFieldByName(column.Name)
		if !found {
			return nil, fmt.Errorf("table %s has no column %s", o.Table, column.Name)
		}
		if isWidened(t, o, column, field) {
			widened = append(widened, lake.Column{ID: column.ID, Name: column.Name, Type: typeIn(field), Lake: int32(field.ID)})
			continue
		}
		if isPending(column, field) {
			interim, _ := t.Schema().FindFieldByName(interimName(column.Name))
			column.Lake = int32(interim.ID)
			continue
		}
		if got := field.Type.String(); got != spelled(column.Type) {
			return nil, permanent(renameHint, "column %s of table %s has type %s, not %s", column.Name, o.Table, got, spelled(column.Type))
		}
		if column.Lake != 0 && column.Lake != int32(field.ID) {
			return nil, permanent(renameHint, "column %s of table %s has field ID %d instead of %d: the table was recreated", column.Name, o.Table, field.ID, column.Lake)
		}
		column.Lake = int32(field.ID)
	}
	if len(widened) > 0 {
		return nil, widened
	}
	return t, nil
}

// An errWidened reports columns that an earlier incarnation of the store has widened.
type errWidened []lake.Column

func (e errWidened) Error() string {
	return fmt.Sprintf("column %s was widened to %s in the lake after the backup that this store was restored from", e[0].Name, e[0].Type)
}

// isWidened reports whether an earlier incarnation of a restored store has put another field in the
// place of a column. The store itself never gives a column another type.
func isWidened(t *table.Table, o *lake.TableOrder, c *lake.Column, field iceberg.NestedField) bool {
	_, kept := t.Schema().FindFieldByID(int(c.Lake))
	return len(o.Incarnations) > 1 && c.Former == 0 && !kept && (c.Lake != 0 || field.Type.String() != spelled(c.Type))
}

// checkTable returns an error for a table that another engine made and that the store cannot use.
func checkTable(s *lake.Settings, t *table.Table) error {
	_, inFolder := localPath(t.Location())
	if inWarehouse, err := warehouseOf(s); err != nil {
		return err
	} else if inFolder && !strings.HasPrefix(inWarehouse, "file:") {
		return permanent("write the warehouse of the catalog in lake.warehouse, or give the table another name in the lake", "the catalog has table %s in a folder of this machine, and the warehouse is in S3", s.Table)
	}
	if err := checkVersion(s, t); err != nil {
		return err
	}
	if spec := t.Spec(); !spec.IsUnpartitioned() {
		return permanent(renameHint, "table %s is partitioned, and files of the store are not", s.Table)
	}
	for _, field := range t.Schema().Fields() {
		if field.Required {
			return permanent(renameHint, "column %s of table %s is required, and files of the store may lack it", field.Name, s.Table)
		}
	}
	if current := t.CurrentSnapshot(); current != nil && !isEmptied(current) && !isPublished(t) {
		return permanent(renameHint, "table %s has rows of another program", s.Table)
	}
	return nil
}

func checkVersion(s *lake.Settings, t *table.Table) error {
	if version := t.Metadata().Version(); version < 2 {
		return permanent(renameHint, "table %s has format version %d; version 2 is needed", s.Table, version)
	}
	return nil
}

const renameHint = "give the table another name in the lake (lake.table)"

// isEmptied reports whether a snapshot says that it has no files.
func isEmptied(s *table.Snapshot) bool {
	return s.Summary != nil && s.Summary.Properties["total-data-files"] == "0"
}

// isPublished reports whether a store has published into a table, or a person has allowed that by the
// property perigee.location.
func isPublished(t *table.Table) bool {
	for name := range t.Properties() {
		if strings.HasPrefix(name, lake.PropertyPrefix) || name == lake.LocationProperty {
			return true
		}
	}
	return false
}

// typeIn returns the type of a field in the spelling of orders.
func typeIn(field iceberg.NestedField) lake.Type {
	return lake.Type(strings.ReplaceAll(field.Type.String(), ", ", ","))
}

// explainTorn adds what a person can do to the error of a table in a folder whose newest metadata
// is truncated. A program that does not sync it can truncate it in a power failure.
func explainTorn(o *lake.TableOrder, err error) error {
	warehouse, local := localPath(o.Warehouse)
	if !local || strings.HasPrefix(o.Catalog, "http") {
		return err
	}
	_, isTorn := errors.AsType[*json.SyntaxError](err)
	if o.Catalog != "" {
		if isTorn {
			err = permanent("restore the metadata file that the catalog names, or drop the table there, but not its files: it is then published again", "the metadata of table %s is truncated: %w", o.Table, err)
		}
		return err
	}
	if isTorn || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) { // the latter if it is compressed
		folder := filepath.Join(warehouse, filepath.Join(strings.Split(o.Table, ".")...), lake.MetadataFolder)
		err = permanent("move that file away: the table then returns to its previous version, and missing rows are published again", "the newest metadata of table %s, %s, is truncated: %w", o.Table, newestMetadata(folder), err)
	}
	return err
}

// newestMetadata returns the path of the metadata in a folder with the highest version.
func newestMetadata(folder string) string {
	files, _ := os.ReadDir(folder)
	newest, last := "", 0
	for _, file := range files {
		var version int
		if n, _ := fmt.Sscanf(file.Name(), "v%d.", &version); n == 1 && version > last && strings.HasSuffix(file.Name(), ".metadata.json") {
			newest, last = file.Name(), version
		}
	}
	return filepath.Join(folder, newest)
}

// isPending reports whether a column has yet to take the place of another one, the field of its
// name.
func isPending(c *lake.Column, field iceberg.NestedField) bool {
	return c.Former != 0 && c.Former == int32(field.ID)
}

// interimName returns the name of a column until it takes the place of another one. A column of
// its own gives it a field ID that other commits do not change, for the files.
func interimName(name string) string { return name + "_widened" }

// addInterims adds the columns that will take the place of others, under other names, and
// returns the table with them.
func addInterims(ctx context.Context, c catalog.Catalog, t *table.Table, o *lake.TableOrder) (*table.Table, error) {
	for i := range o.Columns {
		column := &o.Columns[i]
		field, found := t.Schema().FindFieldByName(column.Name)
		if !found || !isPending(column, field) {
			continue
		}
		doc := fmt.Sprintf("takes the place of %s (field %d)", column.Name, field.ID)
		if interim, found := t.Schema().FindFieldByName(interimName(column.Name)); found {
			if interim.Doc != doc || interim.Type.String() != spelled(column.Type) {
				return nil, permanent("rename that column in the lake, or drop it", "column %s of table %s is in the way of widening %s", interim.Name, o.Table, column.Name)
			}
			continue
		}
		kind, err := typeOf(column.Type)
		if err != nil {
			return nil, err
		}
		transaction := t.NewTransaction()
		if err := transaction.UpdateSchema(true, false).AddColumn([]string{interimName(column.Name)}, kind, doc, false, nil).Commit(); err != nil {
			return nil, err
		}
		if err := commit(ctx, c, transaction); err != nil {
			return nil, err
		}
		if t, err = c.LoadTable(ctx, t.Identifier()); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// swapColumns puts columns in the place of others.
func swapColumns(transaction *table.Transaction, t *table.Table, columns []lake.Column) error {
	update, pending := transaction.UpdateSchema(true, true), false
	for i := range columns {
		name := columns[i].Name
		if field, found := t.Schema().FindFieldByName(name); found && isPending(&columns[i], field) {
			update, pending = update.DeleteColumn([]string{name}).RenameColumn([]string{interimName(name)}, name), true
		}
	}
	if !pending {
		return nil
	}
	return update.Commit()
}

func createTable(ctx context.Context, c catalog.Catalog, identifier table.Identifier, o *lake.TableOrder) (*table.Table, error) {
	if err := c.CreateNamespace(ctx, catalog.NamespaceFromIdent(identifier), nil); err != nil && !errors.Is(err, catalog.ErrNamespaceAlreadyExists) {
		return nil, err
	}
	var fields []iceberg.NestedField
	for i, column := range o.Columns {
		kind, err := typeOf(column.Type)
		if err != nil {
			return nil, err
		}
		fields = append(fields, iceberg.NestedField{ID: i + 1, Name: column.Name, Type: kind})
	}
	options := []catalog.CreateTableOpt{catalog.WithProperties(iceberg.Properties{"format-version": "2"})}
	location, err := freeLocation(ctx, c, identifier, &o.Settings)
	if err != nil {
		return nil, err
	}
	if location != "" {
		options = append(options, catalog.WithLocation(location))
	}
	t, err := c.CreateTable(ctx, identifier, iceberg.NewSchema(0, fields...), options...)
	if errors.Is(err, catalog.ErrTableAlreadyExists) {
		return c.LoadTable(ctx, identifier)
	}
	if err != nil {
		return nil, err
	}
	return claimNew(ctx, c, t)
}

// claimNew claims the location of a table that was just made, if it has no data there. Later another engine may
// have left some that no snapshot names.
func claimNew(ctx context.Context, c catalog.Catalog, t *table.Table) (*table.Table, error) {
	store, err := openObjects(t.Location())
	if err != nil {
		return nil, err
	}
	if data, err := store.list(ctx, lake.DataFolder); err != nil || len(data) > 0 {
		return t, err
	}
	if err := setProperty(ctx, c, t, lake.LocationProperty, t.Location()); err != nil {
		return nil, err
	}
	return c.LoadTable(ctx, t.Identifier())
}

func setProperty(ctx context.Context, c catalog.Catalog, t *table.Table, key, value string) error {
	transaction := t.NewTransaction()
	properties := iceberg.Properties{key: value}
	if err := transaction.SetProperties(properties); err != nil {
		return err
	}
	_, err := commitOnce(ctx, c, transaction, properties)
	return err
}

// freeLocation returns a location for a new table if the one that it has by default has objects,
// such as those of a table that was renamed, and else "". A catalog that does not tell its default
// chooses by itself.
func freeLocation(ctx context.Context, c catalog.Catalog, identifier table.Identifier, s *lake.Settings) (string, error) {
	if s.Catalog == "" { // a folder is the table
		return "", nil
	}
	namespace := catalog.NamespaceFromIdent(identifier)
	properties, err := c.LoadNamespaceProperties(ctx, namespace)
	if err != nil {
		return "", err
	}
	location := properties.Get("location", "")
	if _, isSQL := c.(*sqlCatalog); location == "" && isSQL {
		warehouse, err := warehouseOf(s)
		if err != nil {
			return "", err
		}
		location = strings.TrimSuffix(warehouse, "/") + "/" + strings.Join(namespace, ".") + ".db"
	}
	if location == "" {
		return "", nil
	}
	location = strings.TrimSuffix(location, "/") + "/" + catalog.TableNameFromIdent(identifier)
	store, err := openObjects(location)
	if err != nil {
		return "", err
	}
	for _, folder := range []string{lake.MetadataFolder, lake.DataFolder} {
		objects, err := store.list(ctx, folder)
		if err != nil {
			return "", fmt.Errorf("look for other tables at %s: %w", location, err)
		}
		if len(objects) > 0 {
			return location + "-" + strings.ToLower(rand.Text()[:8]), nil
		}
	}
	return "", nil
}

// addColumns adds the columns that a table does not have.
func addColumns(ctx context.Context, c catalog.Catalog, t *table.Table, columns []lake.Column) error {
	transaction := t.NewTransaction()
	update, added := transaction.UpdateSchema(true, false), false
	for _, column := range columns {
		if _, found := t.Schema().FindFieldByName(column.Name); found {
			continue
		}
		if other, found := t.Schema().FindFieldByNameCaseInsensitive(column.Name); found {
			return permanent(renameHint, "the lake table has a column %s, and many engines cannot tell it from %s", other.Name, column.Name)
		}
		kind, err := typeOf(column.Type)
		if err != nil {
			return err
		}
		update, added = update.AddColumn([]string{column.Name}, kind, "", false, nil), true
	}
	if !added {
		return nil
	}
	if err := update.Commit(); err != nil {
		return err
	}
	return commit(ctx, c, transaction)
}

// commit commits a transaction once.
func commit(ctx context.Context, c catalog.Catalog, transaction *table.Transaction) error {
	_, err := commitOnce(ctx, c, transaction, nil)
	return err
}

// commitOnce commits a transaction once, and returns the location of the table's metadata. The
// library's own commit tries again after errors, although the first attempt may have succeeded. An
// answer without the properties that the commit sets is an error: something between here and the catalog
// has answered, such as a proxy.
func commitOnce(ctx context.Context, c catalog.Catalog, transaction *table.Transaction, properties map[string]string) (string, error) {
	prepared, err := transaction.TableCommit()
	if err != nil {
		return "", err
	}
	metadata, location, err := c.CommitTable(ctx, prepared.Identifier, prepared.Requirements, prepared.Updates)
	if err != nil {
		return "", err
	}
	for name, value := range properties {
		if got := metadata.Properties()[name]; got != value {
			return "", fmt.Errorf("the answer to the commit has %s %q, not %q", name, got, value)
		}
	}
	return location, nil
}

// typeOf returns the library's type.
func typeOf(t lake.Type) (iceberg.Type, error) {
	switch t {
	case lake.Boolean:
		return iceberg.PrimitiveTypes.Bool, nil
	case lake.Int:
		return iceberg.PrimitiveTypes.Int32, nil
	case lake.Long:
		return iceberg.PrimitiveTypes.Int64, nil
	case lake.Double:
		return iceberg.PrimitiveTypes.Float64, nil
	case lake.String:
		return iceberg.PrimitiveTypes.String, nil
	case lake.Binary:
		return iceberg.PrimitiveTypes.Binary, nil
	case lake.Timestamptz:
		return iceberg.PrimitiveTypes.TimestampTz, nil
	}
	var precision, scale int
	if n, _ := fmt.Sscanf(string(t), "decimal(%d,%d)", &precision, &scale); n == 2 {
		return iceberg.DecimalTypeOf(precision, scale), nil
	}
	return nil, fmt.Errorf("unknown type %q", t)
}

// spelled returns the library's spelling of a type.
func spelled(t lake.Type) string {
	if kind, err := typeOf(t); err == nil {
		return kind.String()
	}
	return string(t)
}

// permanent returns an error that trying again does not help.
func permanent(hint, format string, args ...any) error {
	return &event.PermanentError{Err: fmt.Errorf(format, args...), Hint: hint}
}

// localPath returns the path of a location in the file system.
func localPath(location string) (path string, local bool) {
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "" && u.Scheme != "file" {
		return "", false
	}
	return u.Path, true
}
