package main

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// noSuchTable is MariaDB's error number for a missing table.
const noSuchTable = 1146

func isMissingTable(err error) bool {
	fault, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && fault.Number == noSuchTable
}
