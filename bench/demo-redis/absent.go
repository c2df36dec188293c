package main

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// noSuchTable is MariaDB's number for a table that is not there.
const noSuchTable = 1146

func absent(err error) bool {
	fault, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && fault.Number == noSuchTable
}
