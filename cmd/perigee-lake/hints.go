package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/apache/iceberg-go/catalog/rest"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/minio/minio-go/v7"
	"modernc.org/sqlite"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/eventstore/lake"
)

// explain adds a hint to an error of a table's catalog or warehouse that has none.
func explain(s *lake.Settings, err error) error {
	if err == nil || event.HintOf(err) != "" {
		return err
	}
	switch code := codeOf(err); code {
	case "28000", "28P01":
		return event.WithHint(err, "set PGPASSWORD or PGPASSFILE in the environment of the engine, and check the user in lake.catalog")
	case "3D000":
		return event.WithHint(err, "create the database, or correct its name in lake.catalog")
	case "42501", "25006":
		return event.WithHint(err, "allow the user in lake.catalog to create and change tables in that database")
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed", "InvalidToken":
		return event.WithHint(err, "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION in the environment of the engine")
	case "AccessDenied", "Forbidden":
		return event.WithHint(err, "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of the engine, and the rights of that key to the bucket in lake.warehouse")
	case "NoSuchBucket":
		return event.WithHint(err, "create the bucket, or correct its name in lake.warehouse")
	}
	if inSQLite, ok := errors.AsType[*sqlite.Error](err); ok {
		_, rest, _ := strings.Cut(s.Catalog, ":")
		path, _ := sqlitePath(rest)
		named := fmt.Errorf("catalog %s: %w", path, err) // the library does not name it
		const permission, readOnly, cannotOpen, noDatabase = 3, 8, 14, 26
		switch inSQLite.Code() & 0xff { // the higher bits only refine the code
		case permission, readOnly, cannotOpen:
			return event.WithHint(named, "make the folder of that file if it is missing, and allow the user of the engine to write both")
		case noDatabase:
			return event.WithHint(named, "name another file in lake.catalog: that file is not an SQLite database")
		}
		return named
	}
	switch {
	case errors.Is(err, rest.ErrEndpointNotSupported):
		return event.WithHint(err, "name a catalog that can be written in lake.catalog; to publish through that of the engine, leave lake.catalog out")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return event.WithHint(err, "make room on the disk of lake.warehouse")
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return event.WithHint(err, "name a folder in lake.warehouse: that path is a file, or below one")
	case errors.Is(err, rest.ErrUnauthorized), errors.Is(err, rest.ErrForbidden), errors.Is(err, rest.ErrAuthorizationExpired), errors.Is(err, rest.ErrOAuthError):
		return event.WithHint(err, "check PERIGEE_LAKE_TOKEN in the environment of the engine, and the rights of that token")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return event.WithHint(err, "allow the user of the engine to write that file or folder")
	case isUnreachable(err) && strings.HasPrefix(s.Warehouse, "s3:"):
		return event.WithHint(err, "start it, or check the address: lake.catalog, and AWS_ENDPOINT_URL in the environment of the engine for S3")
	case isUnreachable(err):
		return event.WithHint(err, "start it, or check the address: lake.catalog")
	}
	return err
}

// codeOf returns the code in an error of PostgreSQL or S3, or "".
func codeOf(err error) string {
	if inPostgreSQL, ok := errors.AsType[*pgconn.PgError](err); ok {
		return inPostgreSQL.Code
	}
	if inS3, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return inS3.Code
	}
	// That of the library which writes metadata.
	if inS3, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); ok {
		return inS3.ErrorCode()
	}
	return ""
}

// isUnreachable reports whether an error says that no server is at an address.
func isUnreachable(err error) bool {
	_, isName := errors.AsType[*net.DNSError](err)
	return isName || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}
